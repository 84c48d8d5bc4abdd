"""A session stays where it was; a new one goes down its own ranking as far as load demands.

Needs no index and no shared state: the ranking (`ranking.py`) is the same on every gateway.

    1. Where it was before, unless that one is overloaded.
    2. Else the first in its ranking that is neither overloaded nor crowded.
    3. Else the first that is not overloaded; else the least loaded.

*Overloaded*: smoothed load above `load_factor` times the mean and above a floor. The momentary count
would move 28 percent of all turns; floor, last-replica-first and smoothing together move none where
none needs to. *Crowded* (first turns only): with this session it would hold more than
its share of all live session tokens, and some more; this spreads sessions that idle, too. A later
turn of a session this gateway has not seen is not placed by balance: another gateway, whose load
nobody here knows, most likely sent it to the first of the ranking.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from warmturn.fleet import SourceId
from warmturn.router.bounds import DEFAULT_BOUNDS, Bounds
from warmturn.router.decision import Decision, Priced, alive, decided
from warmturn.router.least_load import load_of
from warmturn.router.ranking import ranked
from warmturn.router.views import Candidate, RoutingRequest

__all__ = ["Affinity"]


@dataclass(frozen=True, slots=True)
class Affinity:
    """Sessions to sources by rendezvous ranking, bounded by load."""

    bounds: Bounds = DEFAULT_BOUNDS
    name: ClassVar[str] = "affinity"
    wants_hits: ClassVar[bool] = False

    def choose(
        self, request: RoutingRequest, candidates: Sequence[Candidate], now: float
    ) -> Decision:
        """Return the session's place; the price is its number in the order of preference."""
        del now
        living = alive(candidates)
        overloaded = self.bounds.overloaded(living)
        last = request.last_source
        crowded = (
            self.bounds.crowded(living, request.prompt_tokens)
            if request.is_unplaced
            else frozenset[SourceId]()
        )

        def preference(place: tuple[int, Candidate]) -> tuple[object, ...]:
            rank, candidate = place
            is_last = candidate.source == last
            if candidate.source in overloaded:
                return 3, load_of(candidate), rank
            return (0 if is_last else 1 if candidate.source not in crowded else 2), rank

        order = sorted(enumerate(ranked(request.session, living)), key=preference)
        priced = [
            Priced(c.source, float(i), self._word(c, request, overloaded, crowded), {"rank": rank})
            for i, (rank, c) in enumerate(order)
        ]
        return decided(self.name, request, candidates, priced)

    @staticmethod
    def _word(
        candidate: Candidate,
        request: RoutingRequest,
        overloaded: frozenset[SourceId],
        crowded: frozenset[SourceId],
    ) -> str:
        if candidate.source in overloaded:
            return "overloaded"
        if candidate.source == request.last_source:
            return "was here"
        return "crowded" if candidate.source in crowded else "ranked"
