"""Members become places to send to: the steering's books, a pool of connections, a feed of events."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from warmturn.gateway.limits import Limits
from warmturn.gateway.metrics_reading import ReplicaMetrics
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.steering import GatewaySteering
from warmturn.gateway.upstream import UpstreamAddress
from warmturn.gateway.upstream_pool import UpstreamPool
from warmturn.types import ReplicaId

if TYPE_CHECKING:
    from warmturn.gateway.event_feed import EventFeed

__all__ = ["FleetView"]

logger = logging.getLogger(__name__)


class FleetView:
    """Implements `membership.Fleet`. `pools` is what the data path reads at each request."""

    def __init__(self, steering: GatewaySteering, limits: Limits, *, drain_s: float) -> None:
        self._steering, self._limits, self._drain_s = steering, limits, drain_s
        self.pools: dict[ReplicaId, UpstreamPool] = {}
        self._feeds: dict[ReplicaId, EventFeed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stop listening to events. Pools are the data path's to close."""
        for feed in self._feeds.values():
            self._spawn(feed.close())
        self._feeds = {}
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def join(self, spec: ReplicaSpec, address: UpstreamAddress, now: float) -> None:
        """Raises `InvalidInput` where the steering refuses the replica."""
        pool = UpstreamPool(address, self._limits)
        self._steering.add_replica(spec, now)
        self._steering.set_alive(spec.replica, False, "not asked yet", now)
        self.pools[spec.replica] = pool
        feed = self._steering.event_feed(spec.replica)
        if feed is not None:
            self._feeds[spec.replica] = feed
            self._spawn(feed.start())

    def leave(self, replica: ReplicaId, now: float) -> None:
        """Answers under way still end on their own connections."""
        del now
        feed = self._feeds.pop(replica, None)
        if feed is not None:
            self._spawn(feed.close())
        self._steering.remove_replica(replica)
        pool = self.pools.pop(replica, None)
        if pool is not None:
            pool.close()

    def set_alive(self, replica: ReplicaId, is_alive: bool, why: str, now: float) -> None:
        """It may be sent requests, or may not."""
        self._steering.set_alive(replica, is_alive, why, now)

    def set_draining(self, replica: ReplicaId, is_draining: bool, now: float) -> None:
        """It hands its sessions over, or takes new ones again."""
        self._steering.set_draining(replica, is_draining, now, over_s=self._drain_s)

    def observe_metrics(self, replica: ReplicaId, metrics: ReplicaMetrics, now: float) -> None:
        """What its metrics say."""
        self._steering.observe_metrics(replica, metrics, now)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A feed that could not start leaves the replica without events, and says so."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.warning("events cannot be followed: %s", error)
