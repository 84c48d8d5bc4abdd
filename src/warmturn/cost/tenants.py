"""What isolation costs: a system prompt that all tenants share is kept once per salt."""

from dataclasses import dataclass

from warmturn.cost.capacity import horizon_s
from warmturn.errors import InvalidInput

__all__ = ["TenantCost", "tenant_cost"]


@dataclass(frozen=True, slots=True)
class TenantCost:
    """The pool with and without a salt per tenant."""

    num_tenants: int
    shared_tokens: int
    """Kept once without salts."""
    salted_tokens: int
    """Kept in all: once per salt."""
    salted_bytes: int
    horizon_before_s: float
    horizon_s: float
    lost_hit_tokens: int
    """Prefilled once more by each tenant but the first, before its own copy is warm."""

    @property
    def fits(self) -> bool:
        """Whether the copies fit beside the running requests at all."""
        return self.horizon_s > 0


def tenant_cost(
    *,
    num_tenants: int,
    system_tokens: int,
    block_size: int,
    bytes_per_token: int,
    pool_tokens: float,
    pinned_tokens: float,
    new_tokens_per_s: float,
) -> TenantCost:
    """Return what `num_tenants` salts cost where all share one system prompt.

    Only its full blocks can be shared, so only they are lost. The copies are taken as in use, and
    so as pinned; a tenant that is idle for longer than the horizon loses its copy, and pays again.
    """
    if num_tenants < 1:
        raise InvalidInput(f"{num_tenants} tenants were asked for; give at least one")
    shared = system_tokens // block_size * block_size
    before, after = (
        horizon_s(
            pool_tokens=pool_tokens,
            pinned_tokens=pinned_tokens + copies * shared,
            new_tokens_per_s=new_tokens_per_s,
        )
        for copies in (1, num_tenants)
    )
    return TenantCost(
        num_tenants,
        shared,
        shared * num_tenants,
        shared * num_tenants * bytes_per_token,
        before,
        after,
        shared * (num_tenants - 1),
    )
