"""A probe campaign: which pauses to try next, what was seen, and when it is enough.

    wave 1    a ladder of 8 pauses, log-spaced up to the longest, all waiting at once
    wave 2 …  8 pauses at the quantiles of what is believed so far
    stop      when the interval is narrow, or the budget is spent

It decides and the driver acts: pauses go out, evidence comes in.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from warmturn.errors import InvalidInput
from warmturn.horizon.posterior import HorizonPosterior, Interval

__all__ = ["Campaign", "CampaignResult", "Evidence", "Outcome"]

Outcome: TypeAlias = Literal["measured", "beyond", "below", "routing", "no-evidence"]
"""`beyond`: longer than the longest pause. `below`: shorter than the shortest. `routing`: even at once
hardly anything hits. `no-evidence`: no probe told anything."""

WAVE = 8
NARROW = 1.35
"""High over low of the interval at which more probes gain little."""
_LOW, _HIGH = 0.08, 0.92
_CERTAIN = 0.5
_LEAST_AT_ONCE = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """One probe's answer."""

    pause_s: float
    """As it was, not as it was planned."""
    if_hit: float
    if_miss: float

    @property
    def leans_to_hit(self) -> bool:
        """Whether a hit is the likelier of the two."""
        return self.if_hit > self.if_miss


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """What the probes say so far."""

    outcome: Outcome
    median_s: float
    interval: Interval
    beyond_share: float
    num_probes: int
    num_unknown: int
    at_once_hit_share: float | None
    """Of probes without a pause; None without any. About 1 over the number of replicas behind a
    balancer that ignores conversations."""


class Campaign:
    """Waves of pauses out, evidence in.

    Invariants, checked by `check()`:
    1. Never more probes are planned than the budget has.
    2. Every answer belongs to a planned probe.
    """

    def __init__(self, *, max_pause_s: float, min_pause_s: float = 1.0, budget: int = 48) -> None:
        """`budget`: probes with a pause, at most. Raises `InvalidInput` for less than one wave."""
        if budget < WAVE:
            raise InvalidInput(f"a budget of {budget} probes was given; a wave takes {WAVE}")
        self.posterior = HorizonPosterior(min_pause_s=min_pause_s, max_pause_s=max_pause_s)
        self._min_s, self._max_s, self._budget = min_pause_s, max_pause_s, budget
        self._num_planned = self._num_answers = self._num_unknown = 0
        self._at_once: list[bool] = []

    @property
    def most_seconds(self) -> float:
        """How long all waves take at most: each as long as its longest pause."""
        return math.ceil(self._budget / WAVE) * self._max_s

    def next_wave(self) -> list[float]:
        """Return the pauses to try next, ascending; empty when it is enough."""
        left = self._budget - self._num_planned
        if left <= 0 or self._is_enough():
            return []
        num = min(WAVE, left)
        if self._num_planned == 0:
            ratio = (self._max_s / self._min_s) ** (1 / (num - 1))
            wave = [self._min_s * ratio**k for k in range(num)]
        else:
            step = (_HIGH - _LOW) / max(1, num - 1)
            quantiles = self.posterior.quantiles_s([_LOW + step * k for k in range(num)])
            wave = [min(self._max_s, max(self._min_s, pause)) for pause in quantiles]
        self._num_planned += num
        return wave

    def record(self, evidence: Evidence | None) -> None:
        """Take the answer of one planned probe; None where it told nothing."""
        self._num_answers += 1
        assert self._num_answers <= self._num_planned, "invariant 2"
        if evidence is None or evidence.if_hit + evidence.if_miss <= 0:
            self._num_unknown += 1
            return
        self.posterior.observe(evidence.pause_s, if_hit=evidence.if_hit, if_miss=evidence.if_miss)

    def record_at_once(self, answers: Sequence[Evidence]) -> None:
        """Take probes without a pause: they tell routing from eviction."""
        self._at_once += [answer.leans_to_hit for answer in answers]

    @property
    def result(self) -> CampaignResult:
        """What is known now."""
        return CampaignResult(
            self._outcome(),
            self.posterior.median_s,
            self.posterior.interval,
            self.posterior.beyond_share,
            self._num_answers,
            self._num_unknown,
            self._at_once_share(),
        )

    def check(self) -> None:
        """Assert the numbered invariants."""
        assert self._num_planned <= self._budget, "invariant 1"
        assert self._num_unknown <= self._num_answers <= self._num_planned, "invariant 2"
        self.posterior.check()

    def _is_enough(self) -> bool:
        if self._num_planned < 3 * WAVE or self._num_answers < self._num_planned:
            return False
        interval = self.posterior.interval
        return interval.ratio < NARROW or self.posterior.beyond_share > 1 - 1e-3

    def _at_once_share(self) -> float | None:
        return sum(self._at_once) / len(self._at_once) if self._at_once else None

    def _outcome(self) -> Outcome:
        share = self._at_once_share()
        if share is not None and share < _LEAST_AT_ONCE:
            return "routing"
        if self._num_answers == self._num_unknown:
            return "no-evidence"
        if self.posterior.beyond_share > _CERTAIN:
            return "beyond"
        return "below" if self.posterior.median_s < self._min_s else "measured"
