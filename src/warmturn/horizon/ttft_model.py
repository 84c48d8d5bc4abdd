"""Telling hits from misses by the time to the first token, after a calibration under load.

Log times of cold requests and of immediate repeats are each taken as normal, with one spread. What a
later probe's time says is a likelihood ratio and no verdict: near a threshold a time says little, and
a method that decides there anyway becomes sure of what it does not know.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from warmturn.errors import InvalidInput

__all__ = ["TtftModel", "calibrate_ttft"]

LEAST_AUC = 0.9
"""Chance that a cold request is slower than a repeat: below, probes by time tell too little."""


@dataclass(frozen=True, slots=True)
class TtftModel:
    """Times of both kinds; seconds and log seconds."""

    hit_s: float
    """Median of immediate repeats: the cached floor."""
    miss_s: float
    """Median of cold requests: the full prefill."""
    log_spread: float
    auc: float
    num_samples: int

    @property
    def is_separable(self) -> bool:
        """Whether single times tell hits from misses well enough."""
        return self.auc >= LEAST_AUC and self.miss_s > self.hit_s

    def likelihoods(self, ttft_s: float) -> tuple[float, float]:
        """Return how likely that time is of a hit and of a miss.

        Student's t and not the normal, since the spread is itself from a few samples.
        """
        return self._density(ttft_s, self.hit_s), self._density(ttft_s, self.miss_s)

    def _density(self, ttft_s: float, median_s: float) -> float:
        degrees = max(1, self.num_samples - 2)
        scale = self.log_spread * math.sqrt(1 + 2 / self.num_samples)
        z = (math.log(max(ttft_s, 1e-9)) - math.log(median_s)) / scale
        return float((1 + z * z / degrees) ** (-(degrees + 1) / 2))


def calibrate_ttft(cold_s: Sequence[float], warm_s: Sequence[float]) -> TtftModel:
    """Return the model. Raises `InvalidInput` with fewer than three of each, or times of 0."""
    if min(len(cold_s), len(warm_s)) < 3 or min((*cold_s, *warm_s)) <= 0:
        raise InvalidInput(
            f"{len(cold_s)} cold and {len(warm_s)} repeated requests were timed; three of each are "
            "needed at least, each longer than nothing"
        )
    cold, warm = ([math.log(time) for time in times] for times in (cold_s, warm_s))
    mean_cold, mean_warm = sum(cold) / len(cold), sum(warm) / len(warm)
    squares = sum((x - mean_cold) ** 2 for x in cold) + sum((x - mean_warm) ** 2 for x in warm)
    spread = math.sqrt(squares / (len(cold) + len(warm) - 2))
    wins = sum((c > w) + 0.5 * (c == w) for c in cold for w in warm)
    return TtftModel(
        math.exp(mean_warm),
        math.exp(mean_cold),
        max(spread, 0.02),  # identical times of a simulator would make the model over-sure
        wins / (len(cold) * len(warm)),
        len(cold) + len(warm),
    )
