"""How long users think: from the end of an answer to the next request of the same conversation.

    share within t = share of later turns that came at most t seconds after the answer before

Two sources: a log (`ReturnCurve`, Kaplan-Meier where conversations were cut off while idle) or two
figures a planner gives (`LogNormalThinkTime`).
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

from warmturn.errors import InvalidInput

__all__ = ["LogNormalThinkTime", "ReturnCurve", "ThinkTimes", "return_curve"]

_Z_90 = NormalDist().inv_cdf(0.9)


class ThinkTimes(Protocol):
    """A distribution of the think time before turns that do come."""

    def share_within(self, seconds: float) -> float:
        """Return the share of later turns that came within that time."""

    def seconds_for(self, share: float) -> float:
        """Return the time within which that share came; infinite where it never did."""

    def mean_within_s(self, seconds: float) -> float:
        """Return the mean think time of the turns that came within that time; 0 without any."""


@dataclass(frozen=True, slots=True)
class LogNormalThinkTime:
    """Think time from two figures: half of the turns come within one, 90 percent in the other."""

    median_s: float
    p90_s: float

    def __post_init__(self) -> None:
        """Raises `InvalidInput` unless 0 < median < p90."""
        if not 0 < self.median_s < self.p90_s < math.inf:
            raise InvalidInput(
                f"half of the turns within {self.median_s} s and 90 percent within {self.p90_s} s "
                "were given; both must be above 0, the second larger"
            )

    @property
    def _sigma(self) -> float:
        return math.log(self.p90_s / self.median_s) / _Z_90

    def share_within(self, seconds: float) -> float:
        """Return the share of later turns that came within that time."""
        if seconds <= 0:
            return 0.0
        if math.isinf(seconds):
            return 1.0
        return NormalDist(math.log(self.median_s), self._sigma).cdf(math.log(seconds))

    def seconds_for(self, share: float) -> float:
        """Return the time within which that share came."""
        if not 0 < share < 1:
            return 0.0 if share <= 0 else math.inf
        return math.exp(NormalDist(math.log(self.median_s), self._sigma).inv_cdf(share))

    def mean_within_s(self, seconds: float) -> float:
        """Return the mean think time of the turns that came within that time."""
        share = self.share_within(seconds)
        if share <= 0:
            return 0.0
        mean = self.median_s * math.exp(self._sigma**2 / 2)
        if math.isinf(seconds):
            return mean
        # Weighting a log-normal by its value moves its median up by sigma squared, in logs.
        above = (math.log(seconds / self.median_s) - self._sigma**2) / self._sigma
        return mean * NormalDist().cdf(above) / share


@dataclass(frozen=True, slots=True)
class ReturnCurve:
    """Share of answers that were followed by a next turn, by the seconds since the answer.

    A step function. It ends below 1 where conversations end for good: the end is the share that
    return at all, and think time is the curve divided by it.
    """

    times_s: tuple[float, ...]
    """Seconds at which turns came, ascending, each once."""
    shares: tuple[float, ...]
    """Returned by then, of all answers; ascending."""
    num_returned: int
    num_open: int
    """Answers not followed by another turn before the log ended."""

    @property
    def return_share(self) -> float:
        """Share of answers that another turn follows, as far as the log can tell."""
        return self.shares[-1] if self.shares else 0.0

    def share_within(self, seconds: float) -> float:
        """Return the share of later turns that came within that time; 0 without any."""
        index = bisect_right(self.times_s, seconds)
        return self.shares[index - 1] / self.return_share if index else 0.0

    def seconds_for(self, share: float) -> float:
        """Return the time within which that share of later turns came; infinite without any."""
        index = bisect_left(self.shares, share * self.return_share - 1e-12)
        return self.times_s[index] if index < len(self.times_s) else math.inf

    def mean_within_s(self, seconds: float) -> float:
        """Return the mean think time of the turns that came within that time; 0 without any."""
        stop = bisect_right(self.times_s, seconds)
        if not stop:
            return 0.0
        before = (0.0, *self.shares[: stop - 1])
        steps = zip(self.times_s[:stop], self.shares[:stop], before, strict=True)
        return sum(time * (share - old) for time, share, old in steps) / self.shares[stop - 1]


def return_curve(returned_s: Sequence[float], open_s: Sequence[float] = ()) -> ReturnCurve:
    """Fit the curve by Kaplan-Meier.

    `returned_s`: think time before each turn that came. `open_s`: idle time of each conversation
    that had not come back when the log ended; it may still, so it counts only as not back by then.
    Raises `InvalidInput` for negative times.
    """
    if min((*returned_s, *open_s), default=0.0) < 0:
        raise InvalidInput("a think time is negative: the log's clocks or its order are broken")
    events = sorted(returned_s)
    waiting = sorted(open_s)
    times: list[float] = []
    shares: list[float] = []
    still_away, index = 1.0, 0
    while index < len(events):
        time = events[index]
        stop = bisect_right(events, time)
        num_gone = bisect_left(waiting, time)  # one cut off at that very moment was still away
        at_risk = len(events) - index + len(waiting) - num_gone
        still_away *= 1 - (stop - index) / at_risk
        times.append(time)
        shares.append(1 - still_away)
        index = stop
    return ReturnCurve(tuple(times), tuple(shares), len(events), len(waiting))
