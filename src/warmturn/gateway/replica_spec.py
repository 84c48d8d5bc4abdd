"""What the steering has to know of a replica before it can send anything there."""

import re
from dataclasses import dataclass

from warmturn.errors import InvalidInput
from warmturn.types import ReplicaId

__all__ = ["ReplicaSpec"]

_NAME = re.compile(r"[\x21-\x7e]{1,256}")  # it stands in a response header


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """One engine. Raises `InvalidInput` for a name that no header can carry, or no ranks."""

    replica: ReplicaId
    """What ranks it: the same name on every gateway."""
    models: tuple[str, ...] = ()
    """As it calls them. None named: it is believed to serve any."""
    weight: float = 1.0
    block_size: int | None = None
    """None: what its metrics or its events say."""
    capacity_tokens: int | None = None
    """Of one rank's pool. None: what its metrics say."""
    events_endpoint: str | None = None
    """Of rank 0. None: what it holds is guessed from what was routed there."""
    replay_endpoint: str | None = None
    num_ranks: int = 1

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.replica):
            raise InvalidInput(
                f"replica name {self.replica!r}: give 1 to 256 visible ASCII characters"
            )
        if self.num_ranks < 1:
            raise InvalidInput(
                f"replica {self.replica} has {self.num_ranks} ranks; give at least 1"
            )
        if self.block_size is not None and self.block_size < 1:
            raise InvalidInput(
                f"replica {self.replica} has blocks of {self.block_size} tokens; give at least 1"
            )
