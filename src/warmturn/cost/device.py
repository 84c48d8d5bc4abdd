"""One GPU's memory: weights, activations, and a pool that decode batches and idle chats share."""

from collections.abc import Sequence
from dataclasses import dataclass

from warmturn.cost.capacity import horizon_s
from warmturn.cost.kv_bytes import KvCost
from warmturn.errors import InvalidInput

__all__ = ["DeviceBudget", "Split", "device_budget", "splits"]

DEFAULT_UTILISATION = 0.9
"""vLLM's default share of the memory it may use."""


@dataclass(frozen=True, slots=True)
class DeviceBudget:
    """Bytes of one GPU."""

    total: int
    usable: int
    weights: int
    activations: int

    @property
    def pool(self) -> int:
        """What is left for keys and values."""
        return self.usable - self.weights - self.activations


def device_budget(
    *,
    total_bytes: int,
    weight_bytes: int,
    num_gpus: int = 1,
    activation_bytes: int = 2 * 2**30,
    utilisation: float = DEFAULT_UTILISATION,
) -> DeviceBudget:
    """Return how one of the GPUs that share the weights is used.

    `activation_bytes`: the engine's own peak and its graphs, by default 2 GiB, the order of an 8B
    model's at 8k batched tokens; its start log has the real figure. Raises `InvalidInput` where no
    pool is left.
    """
    if not 0 < utilisation <= 1:
        raise InvalidInput(f"a share of {utilisation} of the memory was asked for; give 0 to 1")
    budget = DeviceBudget(
        total_bytes, int(total_bytes * utilisation), -(-weight_bytes // num_gpus), activation_bytes
    )
    if budget.pool <= 0:
        raise InvalidInput(
            f"{budget.weights:,} bytes of weights and {activation_bytes:,} of activations leave "
            f"nothing of {budget.usable:,} usable bytes on each of {num_gpus} GPUs; use more GPUs "
            "(--tp, --pp), larger ones (--gpu) or smaller weights (--weights)"
        )
    return budget


@dataclass(frozen=True, slots=True)
class Split:
    """The pool divided between running requests and idle conversations."""

    running_share: float
    decode_batch: int
    """The largest that fits, each request at the full length, on all GPUs of the copy."""
    idle_tokens: int
    horizon_s: float
    idle_conversations: int


def splits(
    cost: KvCost,
    *,
    pool_bytes: int,
    sequence_tokens: int,
    new_tokens_per_s: float,
    shares: Sequence[float] = (0.1, 0.25, 0.5, 0.75, 0.9),
) -> list[Split]:
    """Return, for each share given to running requests, the batch and the horizon it leaves.

    `pool_bytes` is of one GPU. A larger decode batch and a longer horizon are bought from the same
    bytes: this is the trade.
    """
    each = cost.bytes_at_per_gpu(sequence_tokens)
    if not each:
        raise InvalidInput(f"{cost.geometry.name} keeps nothing per sequence: no pool is needed")
    groups = cost.parallelism.data_attention
    found = []
    for share in shares:
        batch = int(pool_bytes * share // each)
        idle_bytes = pool_bytes - batch * each
        idle_tokens = idle_bytes * sequence_tokens // each * groups
        horizon = horizon_s(
            pool_tokens=idle_tokens, pinned_tokens=0, new_tokens_per_s=new_tokens_per_s
        )
        found.append(
            Split(share, batch * groups, idle_tokens, horizon, idle_bytes // each * groups)
        )
    return found
