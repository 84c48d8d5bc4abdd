"""What a pool holds, and for how long what lies idle in it survives.

    horizon = (P - A) / R      P tokens of pool, A pinned by running requests,
                               R tokens per second that enter: misses and outputs

Every token that enters the pool pushes the oldest idle one towards its end: prompts that were not
cached, and generated tokens as well, thoughts included, whether or not they can match later.
"""

from dataclasses import dataclass

from warmturn.cost.kv_bytes import KvCost
from warmturn.errors import InvalidInput

__all__ = [
    "TierHorizons",
    "horizon_s",
    "miss_share_without_affinity",
    "num_sequences",
    "pool_tokens",
    "tier_horizons",
    "tokens_to_survive",
]


def pool_tokens(pool_bytes: int, cost: KvCost, *, sequence_tokens: int) -> int:
    """Return the different tokens a pool holds when its sequences are of that length.

    `pool_bytes` is the memory for them on each GPU of a copy; groups of data-parallel attention
    hold different sequences. Of a model without windows and states any length gives the same.
    Raises `InvalidInput` where a sequence takes no bytes at all.
    """
    each = cost.bytes_at_per_gpu(sequence_tokens)
    if each <= 0:
        raise InvalidInput(f"{cost.geometry.name} keeps nothing per sequence: no pool is needed")
    groups = cost.parallelism.data_attention
    if not cost.window_bytes and not cost.state.total:
        return pool_bytes // cost.bytes_per_token_per_gpu * groups
    return pool_bytes * sequence_tokens // each * groups


def num_sequences(pool_bytes: int, cost: KvCost, *, sequence_tokens: int) -> int:
    """Return how many whole sequences of that length the same pool holds at once."""
    each = cost.bytes_at_per_gpu(sequence_tokens)
    return pool_bytes // each * cost.parallelism.data_attention if each else 0


def horizon_s(*, pool_tokens: float, pinned_tokens: float, new_tokens_per_s: float) -> float:
    """Return how long an idle block survives, seconds; infinite where nothing enters.

    0 where running requests pin the whole pool. Raises `InvalidInput` for negative numbers.
    """
    if min(pool_tokens, pinned_tokens, new_tokens_per_s) < 0:
        raise InvalidInput(
            f"a pool of {pool_tokens}, {pinned_tokens} pinned and {new_tokens_per_s} new tokens "
            "per second: none can be negative"
        )
    idle = max(0.0, pool_tokens - pinned_tokens)
    return idle / new_tokens_per_s if new_tokens_per_s else float("inf")


@dataclass(frozen=True, slots=True)
class TierHorizons:
    """How long a block is found on the device, and how much longer in the tier below."""

    device_s: float
    host_extra_s: float

    @property
    def total_s(self) -> float:
        """Until the block is in neither."""
        return self.device_s + self.host_extra_s


def tier_horizons(
    *,
    device_tokens: float,
    host_tokens: float,
    new_prompt_tokens_per_s: float,
    generated_tokens_per_s: float,
    pinned_tokens: float = 0.0,
) -> TierHorizons:
    """Return both horizons where every block that leaves the device is kept by the host.

    Both tiers are passed by the same stream of tokens, prompts and outputs together.
    """
    rate = new_prompt_tokens_per_s + generated_tokens_per_s
    return TierHorizons(
        horizon_s(pool_tokens=device_tokens, pinned_tokens=pinned_tokens, new_tokens_per_s=rate),
        horizon_s(pool_tokens=host_tokens, pinned_tokens=0, new_tokens_per_s=rate),
    )


def tokens_to_survive(*, idle_s: float, pinned_tokens: float, new_tokens_per_s: float) -> float:
    """Return the pool, all tiers together, in which a block survives that long unused."""
    return pinned_tokens + idle_s * new_tokens_per_s


def miss_share_without_affinity(num_replicas: int) -> float:
    """Return the share of later turns that meet a replica which has never seen the conversation.

    Of routing that knows nothing of conversations: seven out of eight with eight replicas.
    """
    if num_replicas < 1:
        raise InvalidInput(f"{num_replicas} replicas were asked for; give at least one")
    return (num_replicas - 1) / num_replicas
