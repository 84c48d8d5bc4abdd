"""One client's connection: requests in, one after the other, and their answers out."""

import asyncio
import socket
import time
from enum import Enum, auto
from typing import cast

from warmturn.gateway.exchange import Exchange
from warmturn.gateway.incoming import read_call
from warmturn.gateway.refusals import local_answer, refusal
from warmturn.gateway.request_reader import Request, RequestReader
from warmturn.gateway.serving import Serving
from warmturn.gateway.turns import Api, Refused

__all__ = ["ClientConnection"]

_MAX_WAITING_BYTES = 65_536
"""Of pipelined requests read ahead of the one being answered."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    """A request is whole; what follows it waits."""
    LINGER = auto()
    """Refused with bytes still to come: they are swallowed, so that the refusal can be read."""
    CLOSING = auto()


class ClientConnection(asyncio.Protocol):
    """Frames requests and lends itself to one exchange at a time.

    A client that shuts down its sending side counts as gone: most that do have left, and a replica
    that goes on for nobody costs more than the rare client that only half-closed.
    """

    __slots__ = (
        "_api",
        "_exchange",
        "_is_paused",
        "_is_reading_paused",
        "_num_held_bytes",
        "_phase",
        "_reader",
        "_request",
        "_serving",
        "_transport",
        "deadline_s",
    )

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._transport: asyncio.Transport | None = None
        self._reader = RequestReader(serving.limits)
        self._request: Request | None = None
        self._exchange: Exchange | None = None
        self._api = Api.OTHER
        self._phase = _Phase.IDLE
        self._num_held_bytes = 0
        self._is_paused = self._is_reading_paused = False
        self.deadline_s = time.monotonic() + serving.limits.keep_alive_s
        """When `timed_out` is due; the data path looks once a second."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or say that there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family != getattr(socket, "AF_UNIX", None):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections = self._serving.connections
        connections.add(self)
        if len(connections) > self._serving.limits.max_connections:
            message = f"the gateway has {len(connections) - 1} connections, its limit; try again"
            self._refuse_unread(Refused(503, message, retry_after_s=1, code="server_overloaded"))

    def data_received(self, data: bytes) -> None:
        """Read on, unless a request is being answered."""
        phase = self._phase
        if phase is _Phase.ANSWER:
            self._reader.hold(data)
            if self._reader.num_waiting_bytes > _MAX_WAITING_BYTES and self._transport is not None:
                self._transport.pause_reading()
                self._is_reading_paused = True
        elif phase is not _Phase.LINGER and phase is not _Phase.CLOSING:
            self._read(data)

    def eof_received(self) -> None:
        """Close: see the class."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's
        """End what is under way."""
        self._phase = _Phase.CLOSING
        self._serving.connections.discard(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()
        self._hold(0)
        self._reader.close()
        self._transport = None

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._is_paused = True
        self.deadline_s = time.monotonic() + self._serving.limits.write_timeout_s
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        """The client keeps up again."""
        self._is_paused = False
        if self._exchange is not None:
            self._exchange.resume()
        elif self._phase is _Phase.IDLE:
            self._wait(self._serving.limits.keep_alive_s)
            self._read_on()

    # What the data path calls.

    def timed_out(self) -> None:
        """`deadline_s` has passed: end what took too long."""
        limits = self._serving.limits
        if self._phase is _Phase.HEAD:
            message = f"the request's head was not complete after {limits.head_timeout_s:g} s"
            self._refuse_unread(Refused(408, message))
        elif self._phase is _Phase.BODY:
            message = f"the request's body was not complete after {limits.body_timeout_s:g} s"
            self._refuse_unread(Refused(408, message, code="body_timeout"))
        elif self._phase is _Phase.ANSWER and self._exchange is not None and not self._is_paused:
            self._exchange.timed_out()
        elif self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Close when nothing is under way; `over` closes the others."""
        if self._phase is _Phase.IDLE and not self._is_paused:
            self._close()

    def close(self) -> None:
        """The gateway stops."""
        if self._exchange is not None:
            self._exchange.close()
        if self._transport is not None and self._phase is not _Phase.CLOSING:
            self._close()

    @property
    def num_waiting_bytes(self) -> int:
        """Read ahead of the request that is being answered."""
        return self._reader.num_waiting_bytes

    # What the exchange calls.

    def write(self, data: bytes) -> None:
        """Send bytes of the answer."""
        if self._transport is not None:
            self._transport.write(data)

    def refuse(self, refused: Refused) -> None:
        """Answer in the gateway's own name."""
        request = self._request
        assert request is not None
        keeps_alive = self._keeps_alive(request)
        has_body = request.method != b"HEAD"
        self.write(refusal(refused, self._api, keeps_alive=keeps_alive, has_body=has_body))
        self.over(keeps_alive=keeps_alive)

    def wait_until(self, deadline_s: float) -> None:
        """Move the deadline, while the client keeps up."""
        if not self._is_paused:
            self.deadline_s = deadline_s

    def over(self, *, keeps_alive: bool) -> None:
        """Go on to the next request, or close."""
        self._exchange = self._request = None
        self._hold(0)
        if self._transport is None or self._phase is not _Phase.ANSWER:
            return
        if not keeps_alive or self._serving.is_draining:
            self._close()
            return
        self._phase = _Phase.IDLE
        if self._is_paused:
            return
        self._wait(self._serving.limits.keep_alive_s)
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()
        if self._reader.num_waiting_bytes:
            # Not at once: a row of refused requests would otherwise nest as deep as it is long.
            asyncio.get_running_loop().call_soon(self._read_on)

    # Reading.

    def _read_on(self) -> None:
        """Take the next of pipelined requests."""
        if self._phase is _Phase.IDLE and self._reader.num_waiting_bytes and not self._is_paused:
            self._read(b"")

    def _read(self, data: bytes) -> None:
        reader = self._reader
        try:
            request = reader.feed(data)
            if request is None:
                self._hold(reader.num_body_bytes)
        except Refused as refused:
            self._refuse_unread(refused)
            return
        if request is not None:
            self._answer(request)
        elif reader.is_in_body:
            if self._phase is not _Phase.BODY:
                self._phase = _Phase.BODY
                self._wait(self._serving.limits.body_timeout_s)
            if reader.awaits_continue:
                reader.awaits_continue = False
                self.write(_CONTINUE)
        elif self._phase is not _Phase.HEAD and not reader.is_idle:
            self._phase = _Phase.HEAD
            self._wait(self._serving.limits.head_timeout_s)

    def _answer(self, request: Request) -> None:
        serving = self._serving
        serving.counts.num_requests += 1
        self._phase = _Phase.ANSWER
        self._request = request
        self._api = Api.OTHER
        now = time.monotonic()
        keeps_alive = self._keeps_alive(request)
        try:
            self._hold(len(request.body))
            if request.method != b"POST" and self._answers_itself(request):
                return
            call = read_call(request, serving.paths, now)
        except Refused as refused:
            serving.counts.refusals[refused.status] += 1
            self.refuse(refused)
            return
        self._api = call.api
        self.deadline_s = now + serving.limits.first_byte_timeout_s
        self._exchange = exchange = Exchange(self, serving, request, call, keeps_alive=keeps_alive)
        exchange.start(now)

    def _answers_itself(self, request: Request) -> bool:
        known = self._serving.local.get(request.target)
        if known is None or request.method not in {b"GET", b"HEAD"}:
            return False
        keeps_alive = self._keeps_alive(request)
        has_body = request.method == b"GET"
        self.write(local_answer(known(), keeps_alive=keeps_alive, has_body=has_body))
        self.over(keeps_alive=keeps_alive)
        return True

    def _refuse_unread(self, refused: Refused) -> None:
        """Answer before the request was whole; what still comes of it is swallowed."""
        self._serving.counts.refusals[refused.status] += 1
        self._hold(0)
        self.write(refusal(refused, Api.OTHER, keeps_alive=False))
        if self._transport is None:
            return
        self._phase = _Phase.LINGER
        self._wait(self._serving.limits.linger_s)
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # Helpers.

    def _keeps_alive(self, request: Request) -> bool:
        # An HTTP/1.0 client would have to be told that the connection is kept: it is not.
        return request.keeps_alive and not request.is_http_1_0 and not self._serving.is_draining

    def _close(self) -> None:
        """Close once all is written."""
        self._phase = _Phase.CLOSING
        self._wait(self._serving.limits.write_timeout_s)
        if self._transport is not None:
            self._transport.close()

    def _hold(self, num_bytes: int) -> None:
        """Count the request's body with those of all others. Raises `Refused` over the limit."""
        serving = self._serving
        serving.num_held_bytes += num_bytes - self._num_held_bytes
        self._num_held_bytes = num_bytes
        if serving.num_held_bytes > serving.limits.max_held_bytes and num_bytes:
            message = f"the gateway holds {serving.num_held_bytes} bytes of requests, its limit is"
            most = serving.limits.max_held_bytes
            raise Refused(
                503, f"{message} {most}; try again", retry_after_s=1, code="server_overloaded"
            )

    def _wait(self, seconds: float) -> None:
        self.deadline_s = time.monotonic() + seconds
