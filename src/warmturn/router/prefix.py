"""The longest prefix, less what load says against it; judged per candidate, not for the fleet."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import ClassVar

from warmturn.router.decision import Decision, Priced, alive, cheapest, decided
from warmturn.router.views import Candidate, RoutingRequest

__all__ = ["Prefix"]


@dataclass(frozen=True, slots=True)
class Prefix:
    """Highest score: matched / prompt - beta * (load - mean) / max(1, mean).

    The rule of vLLM production-stack's load-aware routing. One hot replica does not switch reuse
    off for all: it loses only where it is the one preferred. Loads are smoothed requests.
    """

    beta: float = 1.0
    name: ClassVar[str] = "prefix"
    wants_hits: ClassVar[bool] = True

    def choose(
        self, request: RoutingRequest, candidates: Sequence[Candidate], now: float
    ) -> Decision:
        """Return the highest score; the price is its negative."""
        del now
        living = alive(candidates)
        loads = [c.load.smoothed_requests for c in living]
        mean = fsum(loads) / len(living) if living else 0.0
        priced = [self._priced(c, request, mean) for c in living]
        return decided(self.name, request, candidates, cheapest(priced))

    def _priced(self, candidate: Candidate, request: RoutingRequest, mean: float) -> Priced:
        matched = candidate.hit.any_tokens * candidate.trust
        share = matched / request.prompt_tokens if request.prompt_tokens else 0.0
        load = candidate.load.smoothed_requests
        score = share - self.beta * (load - mean) / max(1.0, mean)
        terms = {"matched_share": share, "load_requests": load, "mean_load_requests": mean}
        return Priced(candidate.source, -score, "score", terms)
