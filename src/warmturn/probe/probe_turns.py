"""A two-turn conversation that no other traffic can keep warm, primed now and probed later.

A nonce stands at the very start, so that the first block and all behind it are this conversation's
own, and a miss pays for all of it.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from warmturn.horizon import residency
from warmturn.probe.client import Answer, Client, Message

__all__ = ["PrimedTurn", "ProbeAnswer", "ProbeText", "prime", "probe"]

_WORDS = ("river", "stone", "cloud", "field", "paper", "candle", "window", "garden")


@dataclass(frozen=True, slots=True)
class ProbeText:
    """What the probe says; only its length and that it stays the same matter."""

    system: str
    first: str = "Summarise section 2."
    second: str = "Now list the risks."
    reply_tokens: int = 16

    @classmethod
    def of_words(cls, num_words: int, *, reply_tokens: int = 16) -> "ProbeText":
        """Return a text of that many words, about as many tokens."""
        system = " ".join(_WORDS[k * 5 % 8] for k in range(num_words))
        return cls(system, reply_tokens=reply_tokens)


@dataclass(frozen=True, slots=True)
class PrimedTurn:
    """Turn 1 is answered and lies in the cache."""

    messages: tuple[Message, ...]
    held_tokens: int
    """What the cache can hold of it: the prompt, and the reply but for its last token."""
    ended_s: float
    first: Answer


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """Turn 2, and how long after turn 1."""

    pause_s: float
    """From the end of turn 1 to the sending of turn 2, as it was."""
    ttft_s: float
    """From the moment it should have been sent."""
    lag_s: float
    """How late this program was: the server is not to blame for it."""
    cached_share: float | None
    """Of what turn 1 left and whole blocks can hold; None where the server does not say."""
    answer: Answer


def prime(
    client: Client,
    text: ProbeText,
    *,
    model: str,
    clock: Callable[[], float] = time.monotonic,
) -> PrimedTurn:
    """Send turn 1 of a fresh conversation. Raises `PeerError`."""
    nonce = secrets.token_hex(12)
    messages: list[Message] = [
        {"role": "system", "content": f"[{nonce}]\n{text.system}"},
        {"role": "user", "content": text.first},
    ]
    answer = client.chat(messages, **_fields(model, text))
    messages += [
        {"role": "assistant", "content": answer.text},
        {"role": "user", "content": text.second},
    ]
    replied = max(0, len(answer.token_ids) or text.reply_tokens)
    held = answer.prompt_tokens + max(0, replied - 1)
    return PrimedTurn(tuple(messages), held, clock(), answer)


def probe(
    client: Client,
    text: ProbeText,
    primed: PrimedTurn,
    *,
    model: str,
    due_s: float,
    block_size: int = 16,
    clock: Callable[[], float] = time.monotonic,
) -> ProbeAnswer:
    """Send turn 2, which was due at `due_s`. Raises `PeerError`."""
    sent_s = clock()
    lag_s = max(0.0, sent_s - due_s)
    answer = client.chat(list(primed.messages), **_fields(model, text))
    share = None
    if answer.cached_tokens is not None:
        # One token more than is held: what can be cached of a prompt is all but its last token.
        share = residency(primed.held_tokens + 1, answer.cached_tokens, block_size)
    return ProbeAnswer(sent_s - primed.ended_s, answer.ttft_s + lag_s, lag_s, share, answer)


def _fields(model: str, text: ProbeText) -> dict[str, object]:
    return {"model": model, "max_tokens": text.reply_tokens, "temperature": 0}
