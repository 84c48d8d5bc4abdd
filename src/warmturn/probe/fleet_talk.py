"""Several conversations at once on one address, with think time and a shared system prompt."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from warmturn.probe.client import Client, Message
from warmturn.probe.conversation import DETAILS, HANDBOOK, QUESTIONS

__all__ = ["FleetShape", "FleetTurn", "talk"]


@dataclass(frozen=True, slots=True)
class FleetShape:
    """How many talk, for how long."""

    sessions: int = 4
    turns: int = 5
    system_words: int = 150
    """Of the system prompt that all sessions share."""
    user_words: int = 200
    """Of each question."""
    reply_tokens: int = 24
    think_time_s: float = 6.0
    """Mean time between an answer and the session's next question."""


@dataclass(frozen=True, slots=True)
class FleetTurn:
    """One answered turn."""

    session: int
    turn: int
    """From 1."""
    prompt_tokens: int
    cached_tokens: int
    ttft_s: float

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens that were computed for it."""
        return self.prompt_tokens - self.cached_tokens


def talk(
    base_url: str,
    model: str,
    shape: FleetShape,
    *,
    seed: int = 0,
    on_turn: Callable[[FleetTurn], None] = lambda _: None,
) -> list[FleetTurn]:
    """Play all conversations at once, each in a thread; the same questions for the same seed.

    Raises `PeerError` where the server fails.
    """
    with ThreadPoolExecutor(shape.sessions) as pool:
        running = [
            pool.submit(_converse, base_url, model, shape, number, seed, on_turn)
            for number in range(shape.sessions)
        ]
        return [turn for one in running for turn in one.result()]


def _converse(
    base_url: str,
    model: str,
    shape: FleetShape,
    number: int,
    seed: int,
    on_turn: Callable[[FleetTurn], None],
) -> list[FleetTurn]:
    rng = random.Random(f"{seed} {number}")  # noqa: S311 - think times, no secrets
    messages: list[Message] = [{"role": "system", "content": _words(HANDBOOK, shape.system_words)}]
    done = []
    with Client(base_url) as client:
        for turn in range(1, shape.turns + 1):
            time.sleep(rng.expovariate(1.0) * shape.think_time_s)
            question = QUESTIONS[(number + 3 * turn) % len(QUESTIONS)]
            opening = f"Desk {number + 1}, question {turn}. {question}"
            text = _words(f"{opening} {DETAILS}", shape.user_words)
            messages.append({"role": "user", "content": text})
            answer = client.chat(
                messages,
                model=model,
                temperature=0,
                max_tokens=shape.reply_tokens,
                ignore_eos=True,
                skip_special_tokens=False,
            )
            messages.append({"role": "assistant", "content": answer.text})
            cached = answer.cached_tokens or 0
            done.append(FleetTurn(number, turn, answer.prompt_tokens, cached, answer.ttft_s))
            on_turn(done[-1])
    return done


def _words(text: str, count: int) -> str:
    words = text.split()
    return " ".join((words * (count // len(words) + 1))[:count])
