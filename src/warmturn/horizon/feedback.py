"""What if the pool were larger? Hits become misses and misses hits, and both move the horizon.

    V = (outputs + new prompt tokens) * h  +  reuse * E[min(G, h)]

V is the pool less what running requests hold, G the think time, `reuse` the tokens per second that
later turns would find if nothing were ever evicted. Within a horizon h the pool sees what is new, and
each conversation's tokens once: those that come back sooner lie idle for G, the others for h. (Che's
approximation of an LRU cache, in tokens.) The right side grows with h, so there is one answer.

A turn that misses is prefilled again and enters the pool as if it were new, so a horizon that is too
short is made shorter by its own misses: halving a pool costs more than half of its horizon.
"""

import math
from dataclasses import dataclass

from warmturn.errors import InvalidInput
from warmturn.session.think_time import ThinkTimes

__all__ = ["LoadModel", "SteadyState", "fit_load", "steady_state"]

_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True)
class LoadModel:
    """What passes through the pool, as a function of the horizon. Tokens per second."""

    generated_tokens_per_s: float
    unavoidable_tokens_per_s: float
    """New words of users: prefilled whatever the cache does."""
    reuse_tokens_per_s: float
    """What later turns would find if nothing were evicted."""
    think_times: ThinkTimes

    def new_tokens_per_s(self, horizon_s: float) -> float:
        """Return what enters with that horizon: misses and outputs."""
        missed = self.reuse_tokens_per_s * (1 - self.think_times.share_within(horizon_s))
        return self.generated_tokens_per_s + self.unavoidable_tokens_per_s + missed

    def idle_tokens(self, horizon_s: float) -> float:
        """Return the idle tokens a pool needs for that horizon."""
        in_time = self.think_times.share_within(horizon_s)
        found_again = self.reuse_tokens_per_s * in_time * self.think_times.mean_within_s(horizon_s)
        return self.new_tokens_per_s(horizon_s) * horizon_s + found_again


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Where the pool settles."""

    horizon_s: float
    hit_share: float
    """Of later turns."""
    new_tokens_per_s: float


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


def steady_state(load: LoadModel, *, idle_tokens: float) -> SteadyState:
    """Return where a pool with that many tokens beside the running ones settles."""
    if load.idle_tokens(_LONGEST_S) <= idle_tokens:
        horizon = math.inf
    else:
        low, high = 0.0, _LONGEST_S
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if load.idle_tokens(middle) > idle_tokens else (middle, high)
        horizon = low
    share = load.think_times.share_within(horizon)
    return SteadyState(horizon, share, load.new_tokens_per_s(horizon))
