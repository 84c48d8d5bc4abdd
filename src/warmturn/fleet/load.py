"""A replica's load as the router sees it: smoothed, because the moment misleads.

A cap on the requests in flight at this moment moved 28 percent of all turns in a trial with a
shape that needed none to move; what decides is therefore the mean over some seconds.
"""

from dataclasses import dataclass
from math import exp
from typing import NamedTuple

from warmturn.errors import InvalidInput

__all__ = ["LoadView", "SmoothedLevel", "SmoothedLoad"]

DEFAULT_MEMORY_S = 10.0
"""Some turns of a busy replica: shorter follows bursts, longer hides an overload from users."""


@dataclass(frozen=True, slots=True)
class LoadView:
    """What one replica has to do.

    | number | source | unit | staleness | missing |
    | --- | --- | --- | --- | --- |
    | num_running | own account of requests in flight | requests | none | 0 |
    | smoothed_requests | the same, averaged over time | requests | its memory | 0 |
    | queued_prefill_tokens | own account: prompts sent without a first token, less predicted hits \
| tokens | none; hits are guesses | 0 |
    | session_tokens | live sessions bound to it, last length each | tokens | one turn | 0 |
    """

    num_running: int = 0
    smoothed_requests: float = 0.0
    queued_prefill_tokens: int = 0
    session_tokens: int = 0


class SmoothedLevel(NamedTuple):
    """A level and its mean as they stood at one moment."""

    level: float
    mean: float
    at_s: float
    memory_s: float

    def mean_at(self, now: float) -> float:
        """Return the mean as of `now`; a clock that went back counts as standing still."""
        level, mean, at_s, memory_s = self
        elapsed_s = now - at_s
        if elapsed_s <= 0.0:
            return mean
        return level + (mean - level) * exp(-elapsed_s / memory_s)


class SmoothedLoad:
    """Mean of a level over time, older values fading with a time constant of `memory_s`."""

    def __init__(self, *, now: float, memory_s: float = DEFAULT_MEMORY_S) -> None:
        """Begin at 0. Raises `InvalidInput` unless `memory_s` is above 0."""
        if memory_s <= 0:
            raise InvalidInput(f"a memory of {memory_s} s was asked for; it must be above 0")
        self.state = SmoothedLevel(0.0, 0.0, now, memory_s)
        """As of the last change; never changed in place."""

    def set_level(self, level: float, *, now: float) -> None:
        """Say that the level is `level` from `now` on."""
        state = self.state
        at_s = max(now, state.at_s)
        self.state = SmoothedLevel(level, state.mean_at(now), at_s, state.memory_s)

    def mean(self, *, now: float) -> float:
        """Return the mean as of `now`."""
        return self.state.mean_at(now)
