"""What engines' tier settings let through: sizes and thresholds that switch a tier off unnoticed.

Lengths in tokens. Each function states one rule as engines in the field have it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from warmturn.errors import InvalidInput

__all__ = [
    "agreeing_hashes",
    "distinct_capacity",
    "first_possible_hit",
    "is_looked_up",
    "load_length",
    "prefetch_capacity",
    "servable_tokens",
    "stored_tokens",
]

_PREFETCH_SHARE = 0.8
"""SGLang's: of the host's room beyond the device's."""


def load_length(
    *, num_tokens: int, device_tokens: int, found_tokens: int, chunk_tokens: int
) -> tuple[int, int]:
    """Return (tokens to load, first token to compute) of a prompt.

    Found are whole chunks from the prompt's start. One token is always computed, and what is on the
    device is not loaded again: never below 0 [LMCache #2158, #3322].
    """
    usable = min(found_tokens // chunk_tokens * chunk_tokens, num_tokens - 1)
    on_device = min(device_tokens, num_tokens - 1)
    return max(usable - on_device, 0), max(usable, on_device)


def stored_tokens(num_tokens: int, *, block_tokens: int, chunk_tokens: int) -> int:
    """Return how much of a prompt a store keeps that takes whole chunks only.

    Raises `InvalidInput` for a chunk that is no multiple of the engine's block.
    """
    if chunk_tokens % block_tokens:
        raise InvalidInput(
            f"a chunk of {chunk_tokens} tokens was asked for and blocks have {block_tokens}; "
            "a chunk must be a multiple of a block"
        )
    return num_tokens // chunk_tokens * chunk_tokens


def agreeing_hashes(rows: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Tell for each hash algorithm whether all processes name equal blocks equally.

    A row has `algo`, `result`, and what was hashed: `prefix_hash`, `tokens_sha`, `extra_keys`,
    `seed`. Where they disagree a shared store fills and is never hit.
    """
    results: defaultdict[str, defaultdict[str, set[str]]]
    results = defaultdict(lambda: defaultdict(set))
    for row in rows:
        hashed = repr([row[k] for k in ("prefix_hash", "tokens_sha", "extra_keys", "seed")])
        results[row["algo"]][hashed].add(repr(row["result"]))
    return {
        algo: all(len(names) == 1 for names in by_input.values())
        for algo, by_input in results.items()
    }


def prefetch_capacity(*, host_tokens: int, device_tokens: int) -> int:
    """Return the room for prefetching from a third tier: none where host and device are equal."""
    return max(0, int(_PREFETCH_SHARE * (host_tokens - device_tokens)))


def is_looked_up(new_tokens: int, *, threshold: int, page_tokens: int) -> bool:
    """Tell whether a prompt's new part is long enough for a third tier to be asked.

    Only whole pages count.
    """
    return new_tokens // page_tokens * page_tokens >= threshold


def first_possible_hit(store_threshold: int) -> int:
    """Return which sending of a prompt can be a hit, where it is stored at the n-th sight."""
    return max(store_threshold, 1) + 1


def servable_tokens(found_tokens: int, *, prompt_logprobs: int | None) -> int:
    """Return how much of a hit may be served: none where every prompt token must be computed."""
    return found_tokens if prompt_logprobs is None else 0


def distinct_capacity(*, device_blocks: int, host_blocks: int, is_inclusive: bool = True) -> int:
    """Return how many different blocks both tiers hold; inclusive ones hold the same twice."""
    return max(device_blocks, host_blocks) if is_inclusive else device_blocks + host_blocks
