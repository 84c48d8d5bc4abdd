"""One after the other: the baseline that keeps no conversation warm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from warmturn.router.decision import Decision, Priced, alive, decided
from warmturn.router.views import Candidate, RoutingRequest

__all__ = ["RoundRobin"]


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Counts with the request's number, so that it needs no memory of its own."""

    name: ClassVar[str] = "round_robin"
    wants_hits: ClassVar[bool] = False

    def choose(
        self, request: RoutingRequest, candidates: Sequence[Candidate], now: float
    ) -> Decision:
        """Return the next in turn."""
        del now
        living = sorted(alive(candidates), key=lambda c: c.source)
        start = request.number % len(living) if living else 0
        turn = living[start:] + living[:start]
        priced = [Priced(c.source, float(i), "turns to wait") for i, c in enumerate(turn)]
        return decided(self.name, request, candidates, priced)
