"""Whether and when a conversation comes back, learned while it runs.

    class     (why the last answer ended) x (how many turns there were)
    hazard    of those of a class that were still away at an age, the share that came back then

Ages lie in 64 bins, equal in log time. Conversations that are still away count as away up to their
age, which is Kaplan-Meier over bins: dropping them would make users look faster than they are.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from warmturn.errors import InvalidInput

__all__ = ["ReturnClass", "ReturnStatistics", "StopKind", "return_class", "stop_kind"]

StopKind: TypeAlias = Literal["tool_use", "end_turn", "other"]
"""A tool runs and the client comes by itself; the user is next; anything else."""

_TURN_BUCKETS = (1, 2, 4, 8)
"""Last turn of each bucket; a fifth holds the rest."""
_NUM_BINS = 64
_FIRST_S, _LAST_S = 0.1, 86_400.0
_LOG_STEP = math.log(_LAST_S / _FIRST_S) / (_NUM_BINS - 2)
_LEAST_RETURNS = 20
"""Below, a class borrows from all conversations: a handful tells nothing of a tail."""


@dataclass(frozen=True, slots=True)
class ReturnClass:
    """What is known of a conversation when an answer ends."""

    stop: StopKind
    turn_bucket: int
    """Index of the bucket of the turns so far: 1, 2, 3-4, 5-8, 9 and more."""


def return_class(stop: StopKind, num_turns: int) -> ReturnClass:
    """Return the class of a conversation of `num_turns` whose last answer ended so."""
    bucket = sum(num_turns > last for last in _TURN_BUCKETS)
    return ReturnClass(stop, bucket)


def stop_kind(finish_reason: str | None, *, has_tool_calls: bool = False) -> StopKind:
    """Return the kind of an engine's or an API's finish reason."""
    if has_tool_calls or finish_reason in {"tool_calls", "tool_use", "function_call"}:
        return "tool_use"
    if finish_reason in {"stop", "end_turn", "stop_sequence", "eos"}:
        return "end_turn"
    return "other"


class ReturnStatistics:
    """Counts of returns by class and age; O(1) per answer, some 30 kB in all.

    Invariants, checked by `check()`:
    1. No count is negative.
    2. The counts of all classes together are the sum over the classes.
    """

    def __init__(self) -> None:
        self._of: dict[ReturnClass, _Counts] = {}
        self._all = _Counts()

    def observe_return(self, of: ReturnClass, gap_s: float) -> None:
        """Count a turn that came `gap_s` after the answer before it."""
        self._count(of, gap_s, is_return=True)

    def observe_away(self, of: ReturnClass, idle_s: float) -> None:
        """Count a conversation that has not come back for `idle_s`; it may still.

        Called once per answer, when it is forgotten or when the statistics are read for good.
        """
        self._count(of, idle_s, is_return=False)

    def num_returns(self, of: ReturnClass | None = None) -> int:
        """Return the turns counted, of one class or of all."""
        counts = self._all if of is None else self._of.get(of)
        return 0 if counts is None else int(counts.returned.sum())

    def chance(
        self, of: ReturnClass, *, idle_s: float = 0.0, within_s: float = math.inf
    ) -> float | None:
        """Return the chance that a conversation away for `idle_s` comes back in the next `within_s`.

        None before anything was seen. O(bins).
        """
        counts = self._counts(of)
        if counts is None:
            return None
        away_now = counts.still_away(idle_s)
        if away_now <= 0:
            return 0.0
        return 1 - counts.still_away(idle_s + within_s) / away_now

    def turns_left(self, of: ReturnClass, *, most: float = 50.0) -> float | None:
        """Return how many more turns to expect, at most `most`; None before anything was seen.

        As if each further answer were followed with the same chance.
        """
        chance = self.chance(of)
        if chance is None:
            return None
        return most if chance >= 1 else min(most, chance / (1 - chance))

    def check(self) -> None:
        """Assert the numbered invariants."""
        total = _Counts()
        for counts in self._of.values():
            assert counts.returned.min() >= 0, "invariant 1"
            assert counts.away.min() >= 0, "invariant 1"
            total.returned += counts.returned
            total.away += counts.away
        assert (total.returned == self._all.returned).all(), "invariant 2"
        assert (total.away == self._all.away).all(), "invariant 2"

    def _counts(self, of: ReturnClass) -> "_Counts | None":
        own = self._of.get(of)
        if own is not None and own.returned.sum() >= _LEAST_RETURNS:
            return own
        return self._all if self._all.returned.any() or self._all.away.any() else None

    def _count(self, of: ReturnClass, seconds: float, *, is_return: bool) -> None:
        if not seconds >= 0:
            raise InvalidInput(f"a conversation was away for {seconds} s; time cannot be negative")
        index = _bin(seconds)
        for counts in (self._of.setdefault(of, _Counts()), self._all):
            (counts.returned if is_return else counts.away)[index] += 1


class _Counts:
    """Returns and open ends by age."""

    __slots__ = ("away", "returned")

    def __init__(self) -> None:
        self.returned = np.zeros(_NUM_BINS, dtype=np.int64)  # [num_bins]
        self.away = np.zeros(_NUM_BINS, dtype=np.int64)  # [num_bins]

    def still_away(self, seconds: float) -> float:
        """Return the share not back by then; inside a bin the hazard is spread evenly."""
        both = self.returned + self.away
        # Those who left a bin without coming back were there for half of it, on average.
        at_risk = both[::-1].cumsum()[::-1] - self.away / 2
        hazard = np.divide(self.returned, at_risk, out=np.zeros(_NUM_BINS), where=at_risk > 0).clip(
            0, 1
        )
        if math.isinf(seconds):
            return float((1 - hazard).prod())
        index = _bin(seconds)
        part = _share_of_bin(seconds, index)
        return float((1 - hazard[:index]).prod() * (1 - hazard[index]) ** part)


def _bin(seconds: float) -> int:
    if seconds < _FIRST_S:
        return 0
    if seconds >= _LAST_S:
        return _NUM_BINS - 1
    return 1 + int(math.log(seconds / _FIRST_S) / _LOG_STEP)


def _share_of_bin(seconds: float, index: int) -> float:
    if index == 0:
        return seconds / _FIRST_S
    if index == _NUM_BINS - 1:
        return 1.0
    return math.log(seconds / _FIRST_S) / _LOG_STEP - (index - 1)
