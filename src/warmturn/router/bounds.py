"""Who is too busy, and who holds too many conversations, each compared with the mean."""

from collections.abc import Sequence
from dataclasses import dataclass

from warmturn.fleet import SourceId
from warmturn.router.least_load import load_of
from warmturn.router.views import Candidate

__all__ = ["DEFAULT_BOUNDS", "Bounds", "session_shares"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits as factors of the mean; with one candidate nothing is ever beyond them."""

    load_factor: float = 1.5
    """A replica half as busy again as the mean for seconds is worth leaving."""
    load_floor_requests: float = 8.0
    """Below this nobody is overloaded: few requests make odd ratios (8 moved none in a trial)."""
    crowd_factor: float = 1.1
    """Live session tokens a new session may bring a replica to, in shares."""

    def overloaded(self, candidates: Sequence[Candidate]) -> frozenset[SourceId]:
        """Return those whose smoothed load is beyond the bound."""
        if not candidates:
            return frozenset()
        weights = sum(c.weight for c in candidates)
        mean = sum(c.load.smoothed_requests for c in candidates) / weights
        limit = max(self.load_floor_requests, self.load_factor * mean)
        return frozenset(c.source for c in candidates if load_of(c) > limit)

    def crowded(self, candidates: Sequence[Candidate], new_tokens: int) -> frozenset[SourceId]:
        """Return those that would hold more than their share with a session of `new_tokens`."""
        shares = session_shares(candidates)
        total = sum(c.load.session_tokens for c in candidates) + new_tokens
        return frozenset(
            c.source
            for c, share in zip(candidates, shares, strict=True)
            if c.load.session_tokens + new_tokens > max(self.crowd_factor * share * total, 1.0)
            and not _is_emptiest(c, candidates, shares)
        )


DEFAULT_BOUNDS = Bounds()


def session_shares(candidates: Sequence[Candidate]) -> list[float]:
    """Return the share of all session tokens each ought to hold: by capacity, else by weight."""
    known = [c.capacity_tokens for c in candidates]
    sizes = [
        float(size) if size is not None and None not in known else c.weight
        for size, c in zip(known, candidates, strict=True)
    ]
    total = sum(sizes)
    return [size / total for size in sizes]


def _is_emptiest(
    candidate: Candidate, candidates: Sequence[Candidate], shares: Sequence[float]
) -> bool:
    """The first sessions exceed every share; somebody has to take them."""
    levels = {
        c.source: c.load.session_tokens / share for c, share in zip(candidates, shares, strict=True)
    }
    return levels[candidate.source] <= min(levels.values())
