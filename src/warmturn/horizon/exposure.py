"""Think time against the horizon: which later turns miss, what that costs, and what would help."""

from dataclasses import dataclass

from warmturn.cost import tokens_to_survive
from warmturn.errors import InvalidInput
from warmturn.session.think_time import ThinkTimes

__all__ = ["Exposure", "TierNeed", "exposure", "tier_need"]


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a horizon does to later turns."""

    horizon_s: float
    hit_share: float
    """Later turns that come back in time."""
    lost_tokens_per_turn: float
    """Prefilled again, averaged over all later turns."""
    lost_s_per_turn: float | None
    """The same as prefill time; None without a prefill rate."""

    @property
    def miss_share(self) -> float:
        """Later turns that come too late."""
        return 1 - self.hit_share


def exposure(
    think_times: ThinkTimes,
    *,
    horizon_s: float,
    tokens_per_miss: float,
    prefill_tokens_per_s: float | None = None,
) -> Exposure:
    """Return the expected share of later turns that miss, and its cost.

    A turn is taken as lost whole once it comes after the horizon.
    """
    hit_share = think_times.share_within(horizon_s)
    lost = (1 - hit_share) * tokens_per_miss
    seconds = lost / prefill_tokens_per_s if prefill_tokens_per_s else None
    return Exposure(horizon_s, hit_share, lost, seconds)


@dataclass(frozen=True, slots=True)
class TierNeed:
    """What reaches a target share of hits. Infinite where no finite pool does."""

    target_share: float
    horizon_s: float
    total_tokens: float
    """Pool and tiers below together."""
    tier_tokens: float
    """Of these, below the pool there is."""


def tier_need(
    think_times: ThinkTimes,
    *,
    target_share: float,
    pool_tokens: float,
    pinned_tokens: float,
    new_tokens_per_s: float,
) -> TierNeed:
    """Return the tokens in which all but `1 - target_share` of later turns find their blocks.

    A longer horizon turns misses into hits, which lowers `new_tokens_per_s`: the need is rather
    stated too high than too low. Raises `InvalidInput` for shares outside 0 to 1.
    """
    if not 0 < target_share < 1:
        raise InvalidInput(
            f"a target of {target_share} was asked for; give a share between 0 and 1"
        )
    needed_s = think_times.seconds_for(target_share)
    total = tokens_to_survive(
        idle_s=needed_s, pinned_tokens=pinned_tokens, new_tokens_per_s=new_tokens_per_s
    )
    return TierNeed(target_share, needed_s, total, max(0.0, total - pool_tokens))
