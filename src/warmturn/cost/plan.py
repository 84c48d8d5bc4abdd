"""All of a plan's arithmetic from one set of inputs: what a model's conversations need and get."""

from dataclasses import dataclass, field

from warmturn.cost.capacity import (
    horizon_s,
    miss_share_without_affinity,
    num_sequences,
    pool_tokens,
)
from warmturn.cost.conversation import ConversationShape
from warmturn.cost.kv_bytes import KvCost
from warmturn.cost.model_source import PlannedModel
from warmturn.cost.reload import PrefillWork, ReloadEstimate, prefill_work, reload_estimate
from warmturn.cost.tenants import TenantCost, tenant_cost
from warmturn.errors import InvalidInput

__all__ = ["Plan", "Workload", "plan_for"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of the pool. The defaults are the worked example of the documentation."""

    shape: ConversationShape = field(default_factory=ConversationShape)
    pool_bytes: int = 40 * 2**30
    """On each GPU of a copy."""
    pinned_tokens: float = 120_000
    """Held by running requests."""
    new_tokens_per_s: float = 6_000
    """Entering the pool: prompts that missed and generated tokens."""
    num_replicas: int = 8
    num_tenants: int = 1
    block_size: int = 16
    link_bytes_per_s: float = 25e9
    """From host memory: a PCIe 4.0 x16 link sustains about that."""
    operations_per_s: float = 400e12
    """Achieved in prefill: the order of one large GPU in 16 bits."""
    parameters: float | None = None
    """Active ones; None takes the model's."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The answers. Tokens, bytes, seconds."""

    workload: Workload
    conversation_tokens: int
    conversation_bytes: int
    pool_tokens: int
    num_conversations: int
    cold_tokens: int
    warm_tokens: int
    warm_tokens_in_blocks: int
    horizon_s: float
    miss_share_without_affinity: float
    reused_tokens: int
    """What the last turn finds of the conversation: its prompt less the new message."""
    reload: ReloadEstimate | None
    """None where the number of parameters is not known."""
    tenants: TenantCost | None
    """None with one tenant."""

    @property
    def bytes_per_token(self) -> float:
        """Average over one conversation, constants included: what a tier below is sized with."""
        return self.conversation_bytes / self.conversation_tokens

    @property
    def prefill_ratio(self) -> float:
        """How many times less is prefilled with reuse."""
        return self.cold_tokens / self.warm_tokens


def plan_for(model: PlannedModel, cost: KvCost, workload: Workload) -> Plan:
    """Return the plan. Raises `InvalidInput` for workloads that make no sense."""
    shape = workload.shape
    tokens = shape.last_prompt_tokens
    pool = pool_tokens(workload.pool_bytes, cost, sequence_tokens=tokens)
    reused = max(0, tokens - shape.user_tokens)
    return Plan(
        workload=workload,
        conversation_tokens=tokens,
        conversation_bytes=cost.bytes_at(tokens),
        pool_tokens=pool,
        num_conversations=num_sequences(workload.pool_bytes, cost, sequence_tokens=tokens),
        cold_tokens=shape.cold_tokens,
        warm_tokens=shape.warm_tokens,
        warm_tokens_in_blocks=shape.warm_tokens_in_blocks(_checked_block_size(workload)),
        horizon_s=horizon_s(
            pool_tokens=pool,
            pinned_tokens=workload.pinned_tokens,
            new_tokens_per_s=workload.new_tokens_per_s,
        ),
        miss_share_without_affinity=miss_share_without_affinity(workload.num_replicas),
        reused_tokens=reused,
        reload=_reload(model, cost, workload, reused),
        tenants=_tenants(cost, workload, pool),
    )


def _checked_block_size(workload: Workload) -> int:
    if workload.block_size < 1:
        raise InvalidInput(f"blocks of {workload.block_size} tokens were asked for; give 1 or more")
    return workload.block_size


def _reload(
    model: PlannedModel, cost: KvCost, workload: Workload, num_tokens: int
) -> ReloadEstimate | None:
    counted = None if model.parameters is None else model.parameters.active
    active = workload.parameters or counted
    if active is None:
        return None
    work: PrefillWork = prefill_work(
        model.geometry, num_tokens=num_tokens, active_parameters=active
    )
    return reload_estimate(
        num_bytes=cost.bytes_at(num_tokens),
        work=work,
        bytes_per_s=workload.link_bytes_per_s,
        operations_per_s=workload.operations_per_s,
    )


def _tenants(cost: KvCost, workload: Workload, pool: int) -> TenantCost | None:
    if workload.num_tenants == 1:
        return None
    return tenant_cost(
        num_tenants=workload.num_tenants,
        system_tokens=workload.shape.system_tokens,
        block_size=workload.block_size,
        bytes_per_token=cost.short_bytes_per_token,
        pool_tokens=pool,
        pinned_tokens=workload.pinned_tokens,
        new_tokens_per_s=workload.new_tokens_per_s,
    )
