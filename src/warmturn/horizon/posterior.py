"""What probes say of the horizon: a Bayesian probit in log pause, on a grid.

    P(hit | log pause x) = e + (1 - 2 e) * (1 - Phi((x - m) / s))

m is the log of the median horizon, s how much horizons differ between conversations, e the share of
probes that err. Each conversation can be probed once, since a hit refreshes it, so every answer is
only "still there" or "gone" at one pause; nothing is ever seen to die. An answer need not be certain:
it enters as two likelihoods, of what was observed if it was a hit and if it was a miss.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warmturn.errors import InvalidInput

__all__ = ["HorizonPosterior", "Interval"]

_Floats = npt.NDArray[np.float64]

_NUM_MEDIANS = 240
_SPREADS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6)
_ERRORS = (0.0, 0.02, 0.05, 0.1)
_BEYOND = 4.0
"""How far outside the pauses a horizon may lie, so that the ends can say "beyond"."""
_Z = np.linspace(-9.0, 9.0, 9001)
_PHI = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in _Z])


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 percent credible interval; seconds."""

    low_s: float
    high_s: float

    @property
    def ratio(self) -> float:
        """High over low."""
        return self.high_s / self.low_s


class HorizonPosterior:
    """Belief about one horizon; each observation costs a few hundred microseconds.

    Invariant, checked by `check()`: the grid's weights are probabilities that sum to 1.
    """

    def __init__(self, *, min_pause_s: float, max_pause_s: float) -> None:
        """Raises `InvalidInput` unless 0 < min < max."""
        if not 0 < min_pause_s < max_pause_s < math.inf:
            raise InvalidInput(
                f"pauses from {min_pause_s} to {max_pause_s} s were asked for; the first must be "
                "above 0, the second larger"
            )
        self.max_pause_s = max_pause_s
        low, high = math.log(min_pause_s / _BEYOND), math.log(max_pause_s * _BEYOND)
        self._medians: _Floats = np.linspace(low, high, _NUM_MEDIANS)  # [num_medians], log seconds
        self._spreads: _Floats = np.array(_SPREADS)[:, None]
        self._errors: _Floats = np.array(_ERRORS)
        # One weight for each triple: [num_medians, num_spreads, num_errors].
        self._log_weights: _Floats = np.zeros((_NUM_MEDIANS, len(_SPREADS), len(_ERRORS)))

    def observe(self, pause_s: float, *, if_hit: float, if_miss: float) -> None:
        """Take one probe: how likely what was seen is if it was a hit, and if it was a miss.

        A certain hit is (1, 0). Only the ratio counts.
        """
        if pause_s <= 0 or min(if_hit, if_miss) < 0 or if_hit + if_miss <= 0:
            raise InvalidInput(
                f"a probe after {pause_s} s with likelihoods {if_hit} and {if_miss}; the pause must "
                "be above 0, and one of them"
            )
        z = (math.log(pause_s) - self._medians[:, None]) / self._spreads.T
        gone = np.interp(z, _Z, _PHI)[:, :, None]
        hit = self._errors + (1 - 2 * self._errors) * (1 - gone)
        scale = max(if_hit, if_miss)
        seen = hit * (if_hit / scale) + (1 - hit) * (if_miss / scale)
        self._log_weights = self._log_weights + np.log(np.maximum(seen, 1e-300))

    @property
    def weights(self) -> _Floats:
        """Probability of each median on the grid, `[num_medians]`."""
        weights = np.exp(self._log_weights - self._log_weights.max()).sum(axis=(1, 2))
        result: _Floats = weights / weights.sum()
        return result

    def quantiles_s(self, shares: Sequence[float]) -> list[float]:
        """Return the horizons below which these shares of the belief lie."""
        weights = self.weights
        step = self._medians[1] - self._medians[0]
        edges = np.concatenate((self._medians - step / 2, [self._medians[-1] + step / 2]))
        below = np.concatenate(([0.0], weights.cumsum()))
        return [math.exp(x) for x in np.interp(shares, below, edges)]

    @property
    def median_s(self) -> float:
        """The horizon of the middle of the belief."""
        return self.quantiles_s([0.5])[0]

    @property
    def interval(self) -> Interval:
        """95 percent of the belief, as much above as below."""
        return Interval(*self.quantiles_s([0.025, 0.975]))

    @property
    def beyond_share(self) -> float:
        """Belief that the horizon is longer than the longest pause."""
        return float(self.weights[self._medians > math.log(self.max_pause_s)].sum())

    def check(self) -> None:
        """Assert the invariant."""
        weights = self.weights
        assert np.isfinite(weights).all(), "weights are finite"
        assert weights.min() >= 0, "weights are probabilities"
        assert abs(float(weights.sum()) - 1) < 1e-9, "weights sum to 1"
