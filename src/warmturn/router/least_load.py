"""The least busy one, whatever it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from warmturn.router.decision import Decision, Priced, alive, decided
from warmturn.router.views import Candidate, RoutingRequest

__all__ = ["LeastLoad"]


@dataclass(frozen=True, slots=True)
class LeastLoad:
    """Lowest smoothed load per weight; equal ones take turns by the request's number."""

    name: ClassVar[str] = "least_load"
    wants_hits: ClassVar[bool] = False

    def choose(
        self, request: RoutingRequest, candidates: Sequence[Candidate], now: float
    ) -> Decision:
        """Return the least loaded one."""
        del now
        living = sorted(alive(candidates), key=lambda c: c.source)
        start = request.number % len(living) if living else 0
        turn = living[start:] + living[:start]
        priced = [Priced(c.source, load_of(c), "load") for c in turn]
        return decided(self.name, request, candidates, sorted(priced, key=lambda p: p.price or 0.0))


def load_of(candidate: Candidate) -> float:
    """Return the smoothed load in requests per weight."""
    return candidate.load.smoothed_requests / candidate.weight
