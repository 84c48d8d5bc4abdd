"""Who is too busy, and who holds too many conversations, each compared with the mean."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum  # exact: no list order decides by rounding

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
    """Live session tokens a new session may bring a replica to, in shares of all."""
    crowd_slack_sessions: float = 2.0
    """And so many sessions of its own length on top. Gateways that share nothing disagree about
    the sessions moved for balance, so few may be: factor and slack together move some 3 percent of
    60 sessions on 4 replicas, and leave the fullest below 1.25 times the mean."""

    def overloaded(self, candidates: Sequence[Candidate]) -> frozenset[SourceId]:
        """Return those whose smoothed load is beyond the bound."""
        if not candidates:
            return frozenset()
        limit = self.limit(
            (c.load.smoothed_requests for c in candidates), (c.weight for c in candidates)
        )
        return frozenset(c.source for c in candidates if load_of(c) > limit)

    def limit(self, loads: Iterable[float], weights: Iterable[float]) -> float:
        """Return the smoothed load per weight beyond which one of these is overloaded."""
        return max(self.load_floor_requests, self.load_factor * fsum(loads) / fsum(weights))

    def crowded(self, candidates: Sequence[Candidate], new_tokens: int) -> frozenset[SourceId]:
        """Return those that would hold more than their share with a session of `new_tokens`."""
        total = sum(c.load.session_tokens for c in candidates) + new_tokens
        slack_tokens = self.crowd_slack_sessions * new_tokens
        return frozenset(
            c.source
            for c, share in zip(candidates, session_shares(candidates), strict=True)
            if c.load.session_tokens + new_tokens > self.crowd_factor * share * total + slack_tokens
        )


DEFAULT_BOUNDS = Bounds()


def session_shares(candidates: Sequence[Candidate]) -> list[float]:
    """Return the share of all session tokens each ought to hold: by capacity, else by weight."""
    known = [c.capacity_tokens for c in candidates]
    sizes = [
        float(size) if size is not None and None not in known else c.weight
        for size, c in zip(known, candidates, strict=True)
    ]
    total = fsum(sizes)
    return [size / total for size in sizes]
