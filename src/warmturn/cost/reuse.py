"""What a turn can reuse, in tokens and blocks, and what the rest costs."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["HYBRID_BLOCK_TOKENS", "Reuse", "TurnCost", "cost_of", "most_cached_tokens", "reuse_of"]

HYBRID_BLOCK_TOKENS = 512
"""Tokens between two saved states of a hybrid (attention and recurrent) model, where not told.

The real figure depends on the model and the engine (vLLM: the attention block is stretched to
the size of a state, some hundreds of tokens): measure it with replays of one prompt.
"""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Tokens reused by kinds of engine."""

    paged: dict[int, int]
    """Block size → tokens, for engines that reuse whole blocks of any prefix."""
    hybrid: int
    """For models with recurrent state, resumed from the last saved state."""
    exact_end_only: int
    """For engines that resume only from the very end of a state: all or nothing."""


@dataclass(frozen=True, slots=True)
class TurnCost:
    """What one turn shares with what its parent left in the cache. Lengths in tokens.

    Shares are before flooring to blocks. `cached_share` is of `P(n) + G(n)[:-1]`.
    """

    prompt_tokens: int
    """Of this turn's prompt."""
    earlier_prompt_tokens: int
    generated_tokens: int
    shared_tokens: int
    num_full_blocks: int
    """Blocks of the paged engine that are reused."""
    prompt_share: float
    cached_share: float
    lost_tokens: int
    """Cached tokens this turn cannot use."""
    lost_blocks: int
    reuse: Reuse
    lost_ttft_s: float | None
    """Prefill time of the tokens lost to a paged engine; None without a prefill rate."""


def most_cached_tokens(prompt_tokens: int, block_size: int) -> int:
    """Return the most a hit can cover: whole blocks, and at least one token is computed."""
    return max(0, prompt_tokens - 1) // block_size * block_size


def reuse_of(
    shared_tokens: int,
    cached_tokens: int,
    *,
    num_next: int,
    block_sizes: Sequence[int],
    hybrid_block_tokens: int = HYBRID_BLOCK_TOKENS,
) -> Reuse:
    """Return what each kind of engine reuses of `shared_tokens` in a prompt of `num_next` tokens.

    At least one token of a prompt is computed, so a hit never covers the whole of it.
    """
    most = min(shared_tokens, most_cached_tokens(num_next, 1))
    is_whole = shared_tokens >= cached_tokens
    return Reuse(
        {size: most // size * size for size in block_sizes},
        most // hybrid_block_tokens * hybrid_block_tokens,
        min(cached_tokens, most) if is_whole else 0,
    )


def cost_of(
    *,
    prompt_tokens: int,
    earlier_prompt_tokens: int,
    generated_tokens: int,
    shared_tokens: int,
    block_size: int,
    hybrid_block_tokens: int = HYBRID_BLOCK_TOKENS,
    prefill_tokens_per_s: float | None = None,
) -> TurnCost:
    """Return the cost of a turn whose first `shared_tokens` are those its parent left.

    `generated_tokens` is the length of `G(n)`, whose last token is never in the cache.
    """
    cached = earlier_prompt_tokens + max(0, generated_tokens - 1)
    shared = min(shared_tokens, cached)
    reuse = reuse_of(
        shared,
        cached,
        num_next=prompt_tokens,
        block_sizes=(block_size,),
        hybrid_block_tokens=hybrid_block_tokens,
    )
    num_blocks = reuse.paged[block_size] // block_size
    lost_blocks = cached // block_size - shared // block_size
    return TurnCost(
        prompt_tokens,
        earlier_prompt_tokens,
        generated_tokens,
        shared,
        num_blocks,
        _share(min(shared, earlier_prompt_tokens), earlier_prompt_tokens),
        _share(shared, cached),
        cached - shared,
        lost_blocks,
        reuse,
        None if not prefill_tokens_per_s else lost_blocks * block_size / prefill_tokens_per_s,
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
