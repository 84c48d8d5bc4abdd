"""What if the horizon were longer? Misses lengthen what enters, and so shorten the horizon.

    h = V / R(h)     R(h) = outputs + new prompt tokens + reuse * (1 - F(h))

V is the pool less what running requests hold, F the share of later turns back within h, `reuse` the
tokens per second that later turns would find if nothing were ever evicted. Both sides hang on h, so
there may be one answer or several: a pool can hold its conversations, or, just as stable, lose them
all and be filled by their recomputation. Which one holds depends on where it comes from.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from warmturn.errors import InvalidInput
from warmturn.session.think_time import ThinkTimes

__all__ = ["LoadModel", "SteadyState", "fit_load", "steady_states"]

_SHORTEST_S, _LONGEST_S = 1e-3, 1e8
_NUM_POINTS = 2000


@dataclass(frozen=True, slots=True)
class LoadModel:
    """What enters the pool, as a function of the horizon. Tokens per second."""

    generated_tokens_per_s: float
    unavoidable_tokens_per_s: float
    """New words of users: prefilled whatever the cache does."""
    reuse_tokens_per_s: float
    """What later turns would find if nothing were evicted."""
    think_times: ThinkTimes

    def new_tokens_per_s(self, horizon_s: float) -> float:
        """Return what enters with that horizon."""
        missed = self.reuse_tokens_per_s * (1 - self.think_times.share_within(horizon_s))
        return self.generated_tokens_per_s + self.unavoidable_tokens_per_s + missed


@dataclass(frozen=True, slots=True)
class SteadyState:
    """One answer."""

    horizon_s: float
    hit_share: float
    """Of later turns."""
    new_tokens_per_s: float
    is_stable: bool
    """A little more or less leads back here. Between two stable states lies one that is not."""


def fit_load(
    *,
    horizon_s: float,
    miss_tokens_per_s: float,
    generated_tokens_per_s: float,
    hit_tokens_per_s: float,
    think_times: ThinkTimes,
) -> LoadModel:
    """Split what is seen at the present horizon into what is and what is not avoidable.

    Hits are those of later turns that came back in time, so they tell how much later turns bring.
    Raises `InvalidInput` where nobody comes back in time, since then hits tell nothing.
    """
    in_time = think_times.share_within(horizon_s)
    if in_time <= 0:
        raise InvalidInput(
            f"with a horizon of {horizon_s:,.3g} s no later turn comes back in time, so what they "
            "would reuse cannot be told from the hits; measure with a larger pool"
        )
    reuse = hit_tokens_per_s / in_time
    avoidable = min(miss_tokens_per_s, reuse * (1 - in_time))
    return LoadModel(generated_tokens_per_s, miss_tokens_per_s - avoidable, reuse, think_times)


def steady_states(load: LoadModel, *, idle_tokens: float) -> list[SteadyState]:
    """Return all horizons at which a pool with that many idle tokens can stay, ascending."""

    def surplus(horizon_s: float) -> float:
        """Tokens that enter within the horizon, less those it takes: 0 at an answer."""
        return horizon_s * load.new_tokens_per_s(horizon_s) - idle_tokens

    ratio = math.log(_LONGEST_S / _SHORTEST_S) / _NUM_POINTS
    points = [_SHORTEST_S * math.exp(ratio * k) for k in range(_NUM_POINTS + 1)]
    states = []
    for low, high in itertools.pairwise(points):
        if surplus(low) <= 0 < surplus(high):
            states.append(_state(load, _root(surplus, low, high), is_stable=True))
        elif surplus(low) > 0 >= surplus(high):
            states.append(_state(load, _root(surplus, low, high), is_stable=False))
    if not states and surplus(points[-1]) <= 0:
        states.append(_state(load, math.inf, is_stable=True))
    return states


def _state(load: LoadModel, horizon_s: float, *, is_stable: bool) -> SteadyState:
    rate = load.new_tokens_per_s(horizon_s)
    return SteadyState(horizon_s, load.think_times.share_within(horizon_s), rate, is_stable)


def _root(of: Callable[[float], float], low: float, high: float) -> float:
    rises = of(high) > of(low)
    for _ in range(60):
        middle = (low + high) / 2
        if (of(middle) > 0) == rises:
            high = middle
        else:
            low = middle
    return (low + high) / 2
