"""What all connections of one gateway share."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warmturn.gateway.incoming import LocalAnswers
from warmturn.gateway.limits import Limits
from warmturn.gateway.turns import Api, Steering
from warmturn.gateway.upstream_pool import UpstreamPool
from warmturn.types import ReplicaId

if TYPE_CHECKING:
    from warmturn.gateway.client_connection import ClientConnection

__all__ = ["Counts", "Serving"]


@dataclass(slots=True)
class Counts:
    """What the data path did since it started."""

    num_requests: int = 0
    """Framed, refused ones included."""
    refusals: Counter[int] = field(default_factory=Counter)
    """By status; not those that the steering decided."""
    num_stale: int = 0
    """Sent again to the same replica, because it had closed a kept connection."""
    num_tries_failed: int = 0
    """Before their first byte."""
    num_cut: int = 0
    """After it."""
    num_clients_gone: int = 0


@dataclass(slots=True)
class Serving:
    """State of one data path. `upstreams` may change while it runs."""

    steering: Steering
    upstreams: Mapping[ReplicaId, UpstreamPool]
    limits: Limits
    paths: Mapping[bytes, Api]
    local: LocalAnswers
    connections: "set[ClientConnection]" = field(default_factory=set)
    num_held_bytes: int = 0
    """Of request bodies, announced or read, whose turns are not over."""
    is_draining: bool = False
    counts: Counts = field(default_factory=Counts)
