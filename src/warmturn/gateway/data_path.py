"""The data path as a whole: listens, looks after deadlines, drains and stops."""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping

from warmturn.errors import InvalidInput
from warmturn.gateway.apis import path_table
from warmturn.gateway.client_connection import ClientConnection
from warmturn.gateway.incoming import LocalAnswers
from warmturn.gateway.limits import Limits
from warmturn.gateway.serving import Counts, Serving
from warmturn.gateway.turns import Steering
from warmturn.gateway.upstream_pool import UpstreamPool
from warmturn.types import ReplicaId

__all__ = ["DataPath"]

logger = logging.getLogger(__name__)

_SWEEP_S = 1.0
"""How often deadlines are looked at: one look at all is cheaper than a timer for each request."""
_BACKLOG = 1024


class DataPath:
    """Serves inference requests from `start` until `close`.

    `upstreams` is read at each request: whoever owns it may add and remove pools at any time, and
    closes those it removes.
    """

    def __init__(
        self,
        steering: Steering,
        upstreams: Mapping[ReplicaId, UpstreamPool],
        limits: Limits | None = None,
        *,
        allowed_paths: Iterable[str] = (),
        local: LocalAnswers | None = None,
    ) -> None:
        """Raises `InvalidInput` where `allowed_paths` has one that must not be relayed."""
        self._serving = Serving(
            steering, upstreams, limits or Limits(), path_table(allowed_paths), local or {}
        )
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def counts(self) -> Counts:
        """What it did since it was made."""
        return self._serving.counts

    @property
    def refusals(self) -> Mapping[int, int]:
        """Requests refused here, not by the steering: by status."""
        return self._serving.counts.refusals

    @property
    def connections(self) -> Collection[ClientConnection]:
        """Clients connected now."""
        return self._serving.connections

    @property
    def num_held_bytes(self) -> int:
        """Of request bodies, announced or read, whose turns are not over."""
        return self._serving.num_held_bytes

    @property
    def num_connections(self) -> int:
        """Clients connected now."""
        return len(self._serving.connections)

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which for 0 is a free one. Raises `InvalidInput`."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: ClientConnection(self._serving), host, port, backlog=_BACKLOG
            )
        except (OSError, OverflowError) as error:
            raise InvalidInput(
                f"cannot listen on {host} port {port}: {error}; "
                "stop what listens there, or choose another port or host"
            ) from error
        self._sweep = loop.call_later(_SWEEP_S, self._look_at_deadlines)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def drain(self, timeout_s: float) -> bool:
        """Take no more requests and let those under way end; say whether all did in time."""
        self._serving.is_draining = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._serving.connections):
            connection.drain()
        deadline_s = time.monotonic() + timeout_s
        while self._serving.connections and time.monotonic() < deadline_s:  # noqa: ASYNC110 - bounded
            await asyncio.sleep(0.05)
        return not self._serving.connections

    async def close(self) -> None:
        """Stop now: what is under way ends with an error."""
        self._serving.is_draining = True
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._serving.connections):
            connection.close()
        await asyncio.sleep(0)  # what was written goes out
        for connection in list(self._serving.connections):
            connection.timed_out()
        for pool in list(self._serving.upstreams.values()):
            pool.close()
        await asyncio.sleep(0)

    def _look_at_deadlines(self) -> None:
        now = time.monotonic()
        self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._look_at_deadlines)
        for connection in list(self._serving.connections):
            if connection.deadline_s < now:
                connection.timed_out()
        for pool in list(self._serving.upstreams.values()):
            pool.sweep(now)
