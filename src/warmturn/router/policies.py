"""The policies by name."""

from warmturn.errors import InvalidInput
from warmturn.router.affinity import Affinity
from warmturn.router.decision import Policy
from warmturn.router.least_load import LeastLoad
from warmturn.router.linear import Linear
from warmturn.router.prefix import Prefix
from warmturn.router.price import Price
from warmturn.router.round_robin import RoundRobin

__all__ = ["POLICY_NAMES", "policy_named"]

_POLICIES: dict[str, type[Policy]] = {
    "price": Price,
    "affinity": Affinity,
    "prefix": Prefix,
    "linear": Linear,
    "least_load": LeastLoad,
    "round_robin": RoundRobin,
}

POLICY_NAMES: tuple[str, ...] = tuple(_POLICIES)


def policy_named(name: str) -> Policy:
    """Return the policy with its defaults. Raises `InvalidInput` naming those there are."""
    if name not in _POLICIES:
        raise InvalidInput(f"policy {name!r} was asked for; there are {', '.join(POLICY_NAMES)}")
    return _POLICIES[name]()
