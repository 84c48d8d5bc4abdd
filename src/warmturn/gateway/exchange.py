"""One turn between a client and the replicas: place, send, relay; try again before the first byte.

    admit ─▶ place ─▶ connect ─▶ send ─▶ head ─▶ first byte ─▶ … ─▶ end ─▶ ended (once)
               ▲         │ connect  │ closed, timeout, status 503
               └─ failed ┴──────────┘            after the first byte: an error event, or a cut

The answer's head waits for its first body byte: servers send it before they have prefilled, and
what the client has seen of an answer binds the turn to its replica.
"""

import asyncio
import time
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Protocol

from warmturn.gateway.answer import RelayedAnswer
from warmturn.gateway.call_body import edited_body
from warmturn.gateway.refusals import failure
from warmturn.gateway.request_reader import Request
from warmturn.gateway.serving import Serving
from warmturn.gateway.turns import Call, Ending, Outcome, Refused, Turn, Usage
from warmturn.gateway.upstream import UpstreamConnection
from warmturn.gateway.upstream_pool import UpstreamPool

__all__ = ["Exchange", "ExchangeClient"]

_RETRIED_STATUSES = frozenset({429, 502, 503, 504})
"""Answers that say `not here, not now`: another replica may take the turn."""


class ExchangeClient(Protocol):
    """The connection that an exchange answers to."""

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        ...

    def refuse(self, refused: Refused) -> None:
        """Send an answer of the gateway's own; ends the exchange."""
        ...

    def wait_until(self, deadline_s: float) -> None:
        """Have `timed_out` called at `deadline_s`, unless told otherwise before."""
        ...

    def over(self, *, keeps_alive: bool) -> None:
        """Take the next request, or close."""
        ...


class Exchange:
    """Carries one call to its end.

    Invariants
    1. A turn that `admit` returned is `ended` exactly once, whoever fails and whenever.
    2. At most one connection to a replica works for it.
    3. After the first byte went to the client, no other replica is asked.
    """

    # Set where they become true: most exchanges never touch them.
    _turn: Turn | None = None
    _pool: UpstreamPool | None = None
    _upstream: UpstreamConnection | None = None
    _answer: RelayedAnswer | None = None
    _body: tuple[bytes, bytes | memoryview] | None = None
    _task: asyncio.Task[None] | None = None
    """Kept, because the event loop holds its tasks only weakly."""
    _is_over = False
    _is_paused = False
    _is_resent = False
    """To the same replica, which had closed a kept connection."""
    _is_status_final = False
    """Nobody else takes the turn: the replica's refusal is the answer."""

    def __init__(
        self,
        client: ExchangeClient,
        serving: Serving,
        request: Request,
        call: Call,
        *,
        keeps_alive: bool,
    ) -> None:
        self._client = client
        self._serving = serving
        self._steering = serving.steering
        self._request = request
        self._call = call
        self._keeps_alive = keeps_alive

    # What the client's connection calls.

    def start(self, now: float) -> None:
        """Have the call admitted and placed."""
        try:
            admitted = self._steering.admit(self._call, now)
        except Refused as refused:
            self._refuse(refused)
        except Exception as error:  # noqa: BLE001 - a failure of ours is the client's 500
            self._give_up(failure(error))
        else:
            if isinstance(admitted, Turn):
                self._turn = admitted
                self._place(now)
            else:
                self._spawn(self._admit(admitted))

    def client_gone(self) -> None:
        """Nobody waits any more: the replica is to stop."""
        if self._is_over:
            return
        self._serving.counts.num_clients_gone += 1
        self._drop_upstream()
        self._end(Ending.CLIENT_GONE, self._status)

    def timed_out(self) -> None:
        """Nothing came for too long: before the first byte another replica may do better."""
        limits = self._serving.limits
        if self._turn is None:
            self._give_up(
                Refused(504, "the request could not be prepared in time", retry_after_s=1)
            )
        elif self._answer is None:
            self._drop_upstream()
            self._failed("timeout")
        else:
            self._cut(f"the replica sent nothing for {limits.stream_timeout_s:g} s")

    def close(self) -> None:
        """The gateway stops: end the turn as if its replica had failed."""
        if self._is_over:
            return
        if self._answer is None:
            self._give_up(Refused(503, "the gateway is shutting down; try again", retry_after_s=1))
        else:
            self._cut("the gateway is shutting down")

    def pause(self) -> None:
        """The client does not keep up."""
        self._is_paused = True
        if self._upstream is not None:
            self._upstream.pause_reading()

    def resume(self) -> None:
        """The client keeps up again."""
        self._is_paused = False
        if self._upstream is not None:
            self._upstream.resume_reading()
        self._wait(self._serving.limits.stream_timeout_s)

    # What the replica's connection calls.

    def answer_came(self) -> None:
        """Relay what has come."""
        assert self._upstream is not None
        reader = self._upstream.reader
        answer = self._answer
        if answer is None:
            if not reader.has_head or (reader.status in _RETRIED_STATUSES and self._moved_on()):
                return
            if reader.pieces or reader.is_complete:
                self._begin_answer()
            return
        data = answer.take() if reader.pieces else b""
        if reader.is_complete:
            self._finish_answer(data)
        else:
            self._pass_on(data)

    def connection_ended(self, why: str) -> None:
        """Find out what the end of the connection means: the answer's end, a retry, or a cut."""
        upstream, self._upstream = self._upstream, None
        if upstream is None or self._is_over:
            return
        reader = upstream.reader
        if reader.is_complete:
            self._upstream = upstream
            self.answer_came()
        elif self._answer is not None:
            if reader.pieces:
                self._client.write(self._answer.take())
            self._cut("the replica ended the connection")
        elif upstream.is_reused and not reader.num_bytes and not self._is_resent:
            self._resend()
        else:
            self._failed(why)

    # Before the first byte.

    async def _admit(self, pending: Awaitable[Turn]) -> None:
        try:
            turn = await pending
        except Refused as refused:
            self._refuse(refused)
            return
        except Exception as error:  # noqa: BLE001 - as in `start`
            self._give_up(failure(error))
            return
        self._turn = turn
        if self._is_over:  # meanwhile: the client has left, or it took too long
            self._steering.ended(turn, Outcome(Ending.CLIENT_GONE, 499), time.monotonic())
        else:
            self._place(time.monotonic())

    def _place(self, now: float) -> None:
        assert self._turn is not None
        try:
            if self._body is None:
                self._body = edited_body(self._turn)
            source = self._steering.place(self._turn, now)
        except Refused as refused:
            self._refuse(refused)
        except Exception as error:  # noqa: BLE001 - as in `start`
            self._give_up(failure(error))
        else:
            self._pool = self._serving.upstreams.get(source.replica)
            self._approach(now)

    def _approach(self, now: float) -> None:
        """Send over a kept connection, or make one."""
        self._is_resent = False
        if self._pool is None:  # removed since
            self._failed("connect")
        elif (kept := self._pool.take()) is not None:
            self._send(kept, now)
        else:
            self._spawn(self._connect(self._pool))

    def _resend(self) -> None:
        """Try the same replica again: it closed a kept connection while the request was sent.

        A server does that to idle ones at any moment; it says nothing against the replica, whose
        blocks are warm.
        """
        assert self._pool is not None
        self._is_resent = True
        self._serving.counts.num_stale += 1
        self._spawn(self._connect(self._pool))

    async def _connect(self, pool: UpstreamPool) -> None:
        try:
            upstream = await pool.connect()
        except OSError:
            if not self._is_over:
                self._failed("closed" if self._is_resent else "connect")
            return
        if self._is_over:
            upstream.close()
        else:
            self._send(upstream, time.monotonic())

    def _send(self, upstream: UpstreamConnection, now: float) -> None:
        assert self._turn is not None
        self._upstream = upstream
        if self._is_paused:
            upstream.pause_reading()
        upstream.send(self, self._parts(), is_head=self._request.method == b"HEAD")
        self._client.wait_until(now + self._serving.limits.first_byte_timeout_s)
        self._steering.sent(self._turn, now)

    def _parts(self) -> Sequence[bytes | memoryview]:
        """Return the request as it goes out."""
        pool, request, turn = self._pool, self._request, self._turn
        assert pool is not None
        assert turn is not None
        assert self._body is not None
        begin, rest = self._body
        head = [request.method, b" ", pool.prefix, request.target, pool.host_lines, *request.lines]
        if pool.keeps_credentials:
            head += request.credentials
        if pool.address.num_ranks > 1 and turn.source is not None:
            head.append(b"x-data-parallel-rank: %d\r\n" % turn.source.rank)
        if request.method == b"POST" or self._call.body:
            head.append(b"content-length: %d\r\n" % (len(begin) + len(rest)))
        head += (b"\r\n", begin)
        return (b"".join(head), rest) if rest else (b"".join(head),)

    def _failed(self, why: str) -> None:
        """A try ended before its first byte; try another replica, or give up."""
        assert self._turn is not None
        self._serving.counts.num_tries_failed += 1
        now = time.monotonic()
        if self._steering.failed(self._turn, why, now):
            self._place(now)
        elif why == "timeout":
            self._give_up(Refused(504, "the replica did not answer in time", code="timeout"))
        else:
            message = (
                "the replica could not be reached, or ended the connection, and no other one can "
                "take the request; try again after the time in Retry-After"
            )
            self._give_up(Refused(503, message, code="no_replica", retry_after_s=1))

    def _moved_on(self) -> bool:
        """Leave a replica that refuses, if there is another; else its refusal is the answer."""
        assert self._turn is not None
        assert self._upstream is not None
        if self._is_status_final:
            return False
        now = time.monotonic()
        try:
            if self._steering.failed(self._turn, f"status {self._upstream.reader.status}", now):
                source = self._steering.place(self._turn, now)
                self._serving.counts.num_tries_failed += 1
                self._drop_upstream()
                self._pool = self._serving.upstreams.get(source.replica)
                self._approach(now)
                return True
        except Refused:
            pass
        self._is_status_final = True
        return False

    # From the first byte on.

    def _begin_answer(self) -> None:
        assert self._turn is not None
        assert self._upstream is not None
        reader, turn = self._upstream.reader, self._turn
        if 200 <= reader.status < 300:
            self._steering.first_byte(turn, time.monotonic())
        self._answer = answer = RelayedAnswer(
            reader,
            turn,
            is_http_1_0=self._request.is_http_1_0,
            is_head=self._request.method == b"HEAD",
            max_reply_bytes=self._serving.limits.max_reply_bytes,
        )
        if answer.needs_close or self._serving.is_draining:
            self._keeps_alive = False
        added = self._steering.response_headers(turn)
        data = answer.head(added, keeps_alive=self._keeps_alive)
        if reader.pieces:
            data += answer.take()
        if reader.is_complete:
            self._finish_answer(data)
        else:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if data:
            self._client.write(data)
        if not self._is_paused:
            self._wait(self._serving.limits.stream_timeout_s)

    def _finish_answer(self, data: bytes) -> None:
        assert self._answer is not None
        assert self._upstream is not None
        data += self._answer.end()
        if data:
            self._client.write(data)
        upstream, self._upstream = self._upstream, None
        status = upstream.reader.status
        if self._is_paused:
            upstream.resume_reading()
        upstream.release()
        self._end(Ending.COMPLETE, status)
        self._client.over(keeps_alive=self._keeps_alive)

    def _cut(self, message: str) -> None:
        """The replica failed in the middle of its answer."""
        assert self._answer is not None
        self._serving.counts.num_cut += 1
        status = self._status
        self._drop_upstream()
        data = self._answer.cut(f"{message}; what came of the answer is not complete")
        if data is not None:
            self._client.write(data)
        self._end(Ending.CUT, status)
        self._client.over(keeps_alive=self._keeps_alive and data is not None)

    # The end.

    def _give_up(self, refused: Refused) -> None:
        """Refuse on the data path's own account."""
        if not self._is_over:
            self._serving.counts.refusals[refused.status] += 1
            self._refuse(refused)

    def _refuse(self, refused: Refused) -> None:
        """End with an answer of the gateway's own; only before the first byte."""
        if self._is_over:
            return
        self._drop_upstream()
        self._end(Ending.REFUSED, refused.status)
        self._client.refuse(refused)

    def _end(self, ending: Ending, status: int) -> None:
        assert not self._is_over
        self._is_over = True
        turn, answer = self._turn, self._answer
        if turn is None:
            return
        usage = reply = response_id = None
        if answer is not None:
            found = answer.usage()
            usage = Usage(found.prompt_tokens, found.cached_tokens, found.completion_tokens)
            reply, response_id = answer.reply(), found.response_id
        outcome = Outcome(ending, status, usage, reply, response_id)
        self._steering.ended(turn, outcome, time.monotonic())

    @property
    def _status(self) -> int:
        """Of what the client has seen; nginx's for a client that left, where it saw nothing."""
        return 499 if self._answer is None else self._answer.status

    def _drop_upstream(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.close()

    def _wait(self, seconds: float) -> None:
        self._client.wait_until(time.monotonic() + seconds)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
