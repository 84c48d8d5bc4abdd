"""Whether idle blocks are still there: one curve for router, tiers and horizon.

    survival(idle) = 1 - Phi((log idle - log median) / spread)

LRU gives every block the same chance at the same moment, so the curve is steep: a spread of 0.1
means that nine of ten horizons lie within 17 percent of the median. The wider it is, the less is
known.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from warmturn.errors import InvalidInput

__all__ = ["HorizonBelief", "survival"]

_NORMAL = NormalDist()

DEFAULT_SPREAD = 0.2
"""In log seconds: what estimates from counters are off by under load that is steady."""


@dataclass(frozen=True, slots=True)
class HorizonBelief:
    """What is believed of one replica's (or tier's) horizon.

    Source: the estimator's horizon, or a probe's posterior. Unit: seconds. Staleness: as old as the
    window it was measured in; a change of load changes it at once. Missing: `survival(None, ...)`.
    """

    median_s: float
    spread: float = DEFAULT_SPREAD

    def __post_init__(self) -> None:
        """Raises `InvalidInput` unless median and spread can be."""
        if not (self.median_s >= 0 and 0 < self.spread < math.inf):
            raise InvalidInput(
                f"a horizon of {self.median_s} s with a spread of {self.spread} was given; the "
                "first must be at least 0, the second above 0"
            )

    def survival(self, idle_s: float) -> float:
        """Return the chance, 0 to 1, that a block unused for `idle_s` is still there."""
        if math.isinf(self.median_s) or idle_s <= 0:
            return 1.0
        if self.median_s == 0 or math.isinf(idle_s):
            return 0.0
        return 1 - _NORMAL.cdf((math.log(idle_s) - math.log(self.median_s)) / self.spread)


def survival(belief: HorizonBelief | None, idle_s: float | None) -> float:
    """Return the chance that blocks outlived an idle time; 1 where either is not known.

    Unknown counts as surviving: a hit that is believed and not there costs one prefill, one that is
    there and not believed sends a session away from its blocks.
    """
    return 1.0 if belief is None or idle_s is None else belief.survival(idle_s)
