"""Kept connections to one replica: the last one used is used next, so that others can grow old."""

import asyncio
import ssl
import time

from warmturn.errors import InvalidInput
from warmturn.gateway.limits import Limits
from warmturn.gateway.upstream import UpstreamAddress, UpstreamConnection

__all__ = ["UpstreamPool"]


class UpstreamPool:
    """Connections to one address.

    Invariants
    1. `_idle` holds usable connections without a request, at most `limits.max_idle_upstream`.
    2. `num_open` counts those that were made and are not lost.
    """

    def __init__(self, address: UpstreamAddress, limits: Limits | None = None) -> None:
        """Raises `InvalidInput` where the address's certificates cannot be read."""
        self.address = address
        self.prefix, self.host_lines = address.head_lines()
        self.keeps_credentials = not address.has_credentials
        self.num_connected = 0
        """Connections ever made: with kept ones far fewer than requests."""
        self._limits = limits or Limits()
        self._idle: list[UpstreamConnection] = []
        self._is_closed = False
        self._tls = _tls_context(address)

    @property
    def num_idle(self) -> int:
        """Kept connections."""
        return len(self._idle)

    def take(self) -> UpstreamConnection | None:
        """Return a kept connection; None where one has to be made."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def connect(self) -> UpstreamConnection:
        """Make a connection. Raises `OSError` (`TimeoutError` among them)."""
        address = self.address
        hostname = (address.server_hostname or address.host) if self._tls else None
        async with asyncio.timeout(self._limits.connect_timeout_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: UpstreamConnection(self._given_back),
                address.host,
                address.port,
                ssl=self._tls,
                server_hostname=hostname,
            )
        self.num_connected += 1
        return connection

    def sweep(self, now: float) -> None:
        """Close what has been idle for longer than the replica is likely to keep it."""
        oldest = now - self._limits.upstream_idle_s
        while self._idle and self._idle[0].idle_since_s < oldest:
            self._idle.pop(0).close()

    def close(self) -> None:
        """Keep no connection any more; those in use end with their answer."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _given_back(self, connection: UpstreamConnection) -> None:
        """Keep a free connection, or forget one that was lost while it was kept."""
        if not connection.is_usable:
            if connection in self._idle:
                self._idle.remove(connection)
        elif self._is_closed or len(self._idle) >= self._limits.max_idle_upstream:
            connection.close()
        else:
            connection.idle_since_s = time.monotonic()
            self._idle.append(connection)


def _tls_context(address: UpstreamAddress) -> ssl.SSLContext | None:
    if not address.tls:
        return None
    try:
        return ssl.create_default_context(cafile=address.ca_file)
    except OSError as error:
        raise InvalidInput(
            f"the certificates in {address.ca_file!r} cannot be read: {error.strerror or error}"
        ) from error
