"""How long prefilling and loading take on this machine, learned from what they took."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["LearnedTime", "PrefillTime", "TransferTime"]

_FADING = 0.9
"""Weight of the past per observation: about the last ten count, so that a store that slows
down is believed within a few loads."""
_PRIOR_WEIGHT = 0.05
"""Of the assumption against one observation: the first one nearly replaces it."""
_FORGET_S = 60.0
"""Half-life of what was learned towards the assumption. Without it, a tier once found slow would
never be asked again and never be found fast again."""


Rates: TypeAlias = npt.NDArray[np.float64]
"""Seconds per unit of each feature."""


class LearnedTime:
    """Seconds as a sum of features times rates: least squares, fading.

    Errors count relative to what the size was assumed to take, not to what it took: else a fast
    load would weigh as much as the square of a slow one's ratio to it, and a store that slows down
    a hundredfold would be believed after sixty loads only.

    A rate below its floor counts as the floor: time never runs backwards.
    """

    def __init__(self, assumed: tuple[float, ...], units: tuple[float, ...]) -> None:
        """`assumed` are rates before the first observation, `units` typical feature values."""
        self._units = np.array(units)
        self._assumed: Rates = np.array(assumed, np.float64) * self._units
        self._floor = 1e-3 * self._assumed
        self._moments = np.zeros((len(units), len(units)))
        self._products = np.zeros(len(units))
        self._rates = self._assumed.copy()
        self._observed_s: float | None = None
        self.num_observations = 0

    def observe(self, features: tuple[float, ...], seconds: float, *, now: float) -> None:
        """Take in what `features` took."""
        x = np.array(features) / self._units
        weight = 1 / float(x @ self._assumed) ** 2
        self._moments = _FADING * self._moments + weight * np.outer(x, x)
        self._products = _FADING * self._products + weight * seconds * x
        self._observed_s = now
        self.num_observations += 1
        self._solve()

    def predict(self, features: tuple[float, ...], *, now: float) -> float:
        """Return the seconds `features` will take."""
        return float(np.dot(np.array(features) / self._units, self._blended(now)))

    def rates(self, *, now: float) -> tuple[float, ...]:
        """Return the rate of each feature."""
        return tuple((self._blended(now) / self._units).tolist())

    def _blended(self, now: float) -> Rates:
        if self._observed_s is None:
            return self._assumed
        fresh = 0.5 ** (max(now - self._observed_s, 0.0) / _FORGET_S)
        blended: Rates = fresh * self._rates + (1 - fresh) * self._assumed
        return blended

    def _solve(self) -> None:
        """Draw the solution a little towards the assumption, then clip it.

        Where one rate is clipped the others are scaled, so that the mean error stays zero.
        """
        scale = _PRIOR_WEIGHT / np.maximum(self._assumed, 1e-12) ** 2
        moments = self._moments + np.diag(scale)
        products = self._products + scale * self._assumed
        rates = np.maximum(np.linalg.solve(moments, products), self._floor)
        explained = float(rates @ self._moments @ rates)
        if explained > 0:
            rates = rates * max(float(self._products @ rates) / explained, 1e-3)
        self._rates = rates


@dataclass(frozen=True, slots=True)
class _Line:
    """`fixed_s + size / per_s`, what a transfer is assumed to take before the first one."""

    fixed_s: float
    bytes_per_s: float


ASSUMED: Mapping[str, _Line] = {
    "host": _Line(0.0005, 4e9),
    "disk": _Line(0.002, 1e9),
    "shared": _Line(0.005, 5e8),
}
"""Orders of magnitude of one machine of 2026 (docs/design/tiers.md); hopeful, so that a tier is
tried before it is judged."""


class TransferTime:
    """How long it takes until so many bytes of one tier are on the device."""

    def __init__(self, fixed_s: float, bytes_per_s: float, *, typical_bytes: float = 1e7) -> None:
        """`typical_bytes`: the size of a usual load, for the arithmetic's sake."""
        self._time = LearnedTime((fixed_s, 1 / bytes_per_s), (1.0, typical_bytes))

    @classmethod
    def assumed_for(cls, tier: str, *, typical_bytes: float) -> "TransferTime":
        """Return the assumption for a tier by its name."""
        line = ASSUMED[tier]
        return cls(line.fixed_s, line.bytes_per_s, typical_bytes=typical_bytes)

    def observe(self, num_bytes: int, seconds: float, *, now: float) -> None:
        """Take in a load: its bytes, those queued before it included, and its time."""
        self._time.observe((1.0, float(num_bytes)), seconds, now=now)

    def predict(self, num_bytes: float, *, now: float) -> float:
        """Return seconds for `num_bytes`, those queued included."""
        return self._time.predict((1.0, num_bytes), now=now)

    def line(self, *, now: float) -> tuple[float, float]:
        """Return (fixed_s, seconds per byte)."""
        fixed_s, s_per_byte = self._time.rates(now=now)
        return fixed_s, s_per_byte


class PrefillTime:
    """How long it takes to compute tokens `[start, stop)` of a sequence.

    step_s + s_per_token * tokens + s_per_pair * (tokens attending * tokens attended to)
    """

    def __init__(self, tokens_per_s: float = 2000.0) -> None:
        """Before the first step: 2,000 tokens per second, between a laptop and a GPU."""
        self._time = LearnedTime(
            (0.005, 1 / tokens_per_s, 1 / tokens_per_s / 20_000), (1.0, 1e3, 1e6)
        )

    def observe(self, num_tokens: int, num_pairs: float, seconds: float, *, now: float) -> None:
        """Take in a step: its tokens, and the sum over them of what each attends to."""
        self._time.observe((1.0, float(num_tokens), num_pairs), seconds, now=now)

    def predict(self, start: int, stop: int, *, now: float) -> float:
        """Return seconds for tokens `[start, stop)`; 0 for none."""
        if stop <= start:
            return 0.0
        pairs = (stop * stop - start * start) / 2
        return self._time.predict((1.0, float(stop - start), pairs), now=now)

    def rates(self, *, now: float) -> tuple[float, float, float]:
        """Return (step_s, s_per_token, s_per_pair)."""
        step_s, s_per_token, s_per_pair = self._time.rates(now=now)
        return step_s, s_per_token, s_per_pair
