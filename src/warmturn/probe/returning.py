"""A conversation that comes back after others took its blocks: what its last turn then costs."""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from warmturn.probe.client import Answer, Client
from warmturn.probe.conversation import Shape, play

__all__ = ["Return", "come_back", "evict", "record", "resend"]

_SOURCE = re.compile(
    r'^vllm:prompt_tokens_cached_by_source_total\{[^}]*source="(\w+)"[^}]*\} (\S+)', re.MULTILINE
)
_ONE_TOKEN = {"temperature": 0, "max_tokens": 1, "ignore_eos": True}
_FILLER_IDS = range(1000, 2000)
"""Ordinary tokens of every vocabulary of use; under a salt of their own they match nothing."""


@dataclass(frozen=True, slots=True)
class Return:
    """The last turn of a conversation, and where the tokens came from that were not computed."""

    answer: Answer
    tokens_by_source: dict[str, int]
    """Prompt tokens by the tier they came from, `device` included; empty where all were computed."""


def record(client: Client, shape: Shape, *, model: str) -> Iterator[Answer]:
    """Play the conversation once, everything warm; its prompts can then be sent again."""
    return play(client, shape, model=model, salt=secrets.token_hex(16))


def come_back(
    client: Client,
    recorded: Sequence[Answer],
    shape: Shape,
    facts: dict[str, Any],
    *,
    on_step: Callable[[str], None] = lambda _: None,
) -> Return:
    """Play recorded turns anew up to the last, let others take the blocks, then send the last.

    `facts` is what the engine said at its start: the pool's size, and how many blocks pass through
    host memory where no host tier was asked for; those are overwritten as well.
    """
    salt = secrets.token_hex(16)
    for turn, answer in enumerate(recorded[:-1], start=1):
        on_step(f"turn {turn}")
        _send(client, answer, shape, salt)
    evict(client, facts, on_step=on_step)
    on_step(f"turn {len(recorded)}")
    return resend(client, recorded[-1], shape, salt=salt)


def resend(client: Client, recorded: Answer, shape: Shape, *, salt: str) -> Return:
    """Send one recorded prompt and tell where its tokens came from."""
    before = _tokens_by_source(client)
    answer = _send(client, recorded, shape, salt)
    after = _tokens_by_source(client)
    grown = {source: n - before.get(source, 0) for source, n in after.items()}
    return Return(answer, {source: n for source, n in grown.items() if n})


def evict(
    client: Client, facts: dict[str, Any], *, on_step: Callable[[str], None] = lambda _: None
) -> None:
    """Send foreign prompts as large as the pool until nothing older is left in it."""
    num_tokens = min(facts["num_blocks"] * facts["block_size"], facts["max_model_len"]) - 1
    each = num_tokens // facts["block_size"]
    passing = facts["tiers"].get("staging_blocks", 0)
    rounds = -(-max(facts["num_blocks"], passing) // each)
    for number in range(rounds):
        on_step(f"others need the room ({number + 1} of {rounds})")
        prompt = [_FILLER_IDS[i % len(_FILLER_IDS)] for i in range(num_tokens)]
        client.complete(prompt, cache_salt=secrets.token_hex(16), **_ONE_TOKEN)


def _send(client: Client, recorded: Answer, shape: Shape, salt: str) -> Answer:
    return client.complete(
        list(recorded.prompt_token_ids),
        cache_salt=salt,
        temperature=0,
        max_tokens=shape.reply_tokens,
        ignore_eos=True,
        skip_special_tokens=False,
    )


def _tokens_by_source(client: Client) -> dict[str, int]:
    return {source: int(float(n)) for source, n in _SOURCE.findall(client.get_text("/metrics"))}
