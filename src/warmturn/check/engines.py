"""What a break costs depends on what an engine can resume from.

| engine | resumes from | who |
| --- | --- | --- |
| paged | any full block of a prefix | attention models in vLLM, SGLang |
| block-quantised | the last saved state, every some hundred tokens | models with recurrent state |
| exact-end | the very end of a state, or nothing | engines that keep one state per slot |
"""

from typing import Literal, TypeAlias, get_args

from warmturn.cost.reuse import HYBRID_BLOCK_TOKENS, TurnCost

__all__ = ["ENGINES", "Engine", "default_block_tokens", "lost_to"]

Engine: TypeAlias = Literal["paged", "block-quantised", "exact-end"]

ENGINES: tuple[Engine, ...] = get_args(Engine)

_VLLM_BLOCK_TOKENS = 16


def default_block_tokens(engine: Engine) -> int:
    """Return the step in which `engine` reuses, in tokens, where nobody has measured it."""
    return HYBRID_BLOCK_TOKENS if engine == "block-quantised" else _VLLM_BLOCK_TOKENS


def lost_to(cost: TurnCost, engine: Engine, *, block_tokens: int) -> int:
    """Return the tokens `engine` could have reused after the earlier turn, and now computes."""
    cached = cost.shared_tokens + cost.lost_tokens
    if engine == "exact-end":
        return cached if cost.lost_tokens else 0
    return (cached // block_tokens - cost.shared_tokens // block_tokens) * block_tokens
