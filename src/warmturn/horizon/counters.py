"""Do the engine's counters agree with what the requests say? They need not.

A request that is preempted, or waits for blocks, is looked up again and finds its own blocks:
counters then show hits that no user had. The opposite exists too: requests that report nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from warmturn.errors import InvalidInput
from warmturn.horizon.metrics_page import counter_named

__all__ = ["ReuseCheck", "check_reuse"]

TOLERANCE = 0.02
"""Shares that differ by more contradict each other."""


@dataclass(frozen=True, slots=True)
class ReuseCheck:
    """Both accounts of the same traffic. Tokens."""

    true_reuse: float
    """From the requests."""
    counter_rate: float
    extra_queries: int
    """Looked up beyond the prompts of the requests."""
    extra_hits: int
    num_preemptions: int | None
    trust: Literal["per-request", "counters"]

    @property
    def is_contradiction(self) -> bool:
        """Whether the two accounts disagree."""
        return abs(self.true_reuse - self.counter_rate) > TOLERANCE


def check_reuse(requests: Sequence[tuple[int, int]], counters: Mapping[str, float]) -> ReuseCheck:
    """Compare `(prompt_tokens, cached_tokens)` of requests with what counters grew by meanwhile.

    `counters` has an engine's names, old or new. The requests are right, unless none reports any
    reuse and the engine looked up just their prompts: then it is they that say nothing. Raises
    `InvalidInput` where there is nothing to compare.
    """
    prompts = sum(prompt for prompt, _ in requests)
    cached = sum(found for _, found in requests)
    queries, hits = counter_named("queries", counters), counter_named("hits", counters)
    if not prompts or not queries or hits is None:
        raise InvalidInput(
            f"{len(requests)} requests of {prompts} tokens and counters of {queries or 0:.0f} "
            "looked-up tokens: there is nothing to compare"
        )
    says_nothing = cached == 0 and hits > 0 and queries <= prompts
    preemptions = counter_named("preemptions", counters)
    return ReuseCheck(
        cached / prompts,
        hits / queries,
        round(queries - prompts),
        round(hits - cached),
        None if preemptions is None else round(preemptions),
        "counters" if says_nothing else "per-request",
    )
