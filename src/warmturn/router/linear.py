"""The rule this project began with: new tokens against queued tokens, in one line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from warmturn.router.decision import Decision, Priced, alive, cheapest, decided
from warmturn.router.views import Candidate, RoutingRequest

__all__ = ["Linear"]


@dataclass(frozen=True, slots=True)
class Linear:
    """Highest score: -alpha * new tokens - beta * queued prefill tokens.

    The hit stops at the first miss. Trust, tiers and the rest of the session do not count; `price`
    is this rule with units.
    """

    alpha: float = 1.0
    beta: float = 0.5
    name: ClassVar[str] = "linear"
    wants_hits: ClassVar[bool] = True

    def choose(
        self, request: RoutingRequest, candidates: Sequence[Candidate], now: float
    ) -> Decision:
        """Return the highest score; the price is its negative."""
        del now
        priced = [self._priced(c, request) for c in alive(candidates)]
        return decided(self.name, request, candidates, cheapest(priced))

    def _priced(self, candidate: Candidate, request: RoutingRequest) -> Priced:
        new_tokens = request.prompt_tokens - candidate.hit.any_tokens
        queued_tokens = candidate.load.queued_prefill_tokens
        score = -self.alpha * new_tokens - self.beta * queued_tokens
        terms = {"new_tokens": float(new_tokens), "queued_tokens": float(queued_tokens)}
        return Priced(candidate.source, -score, "score", terms)
