"""One replica's KV events, read from its publishers and its replay sockets.

    SUB, one per rank   connected ──▶ consumer.connect ──▶ replay asked for
                        batch     ──▶ consumer.receive ──▶ replay asked for where one is missing
                        connected again: another life, or one whose batches were missed
    DEALER, per replay  [empty, first number] ──▶ batches, end mark ──▶ consumer.replayed, ended

The consumer decides; here are the sockets, time-outs and turns of the event loop. What is read comes
from elsewhere: frames that are no batch are counted and dropped.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from warmturn.cache.events import MAX_BATCH_BYTES
from warmturn.errors import InvalidInput
from warmturn.fleet import FleetConsumer, ReplayRequest, SourceId, publisher_ports
from warmturn.types import ReplicaId

__all__ = ["EventFeed", "endpoint_of_rank"]

_SETTLE_S = 0.05
"""After the handshake, until the publisher has surely heard of the subscription."""
_REPLAY_TIMEOUT_S = 2.0
"""For each further batch of an answer; a publisher answers between two steps."""
_TURN_S = 0.002
"""Of work without letting others on the event loop: with one batch on top below 5 ms."""
_MAX_QUEUED_BATCHES = 10_000  # vLLM's buffer; beyond it batches are lost, seen and asked for again
_RECONNECT_MS, _MAX_RECONNECT_MS, _HEARTBEAT_MS = 100, 5_000, 5_000
_END = -1
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class EventFeed:
    """Follows all ranks of one replica, until closed.

    Raises `InvalidInput` for an endpoint that has no place for all ranks.
    """

    def __init__(
        self,
        replica: ReplicaId,
        consumer: FleetConsumer,
        *,
        endpoint: str,
        replay_endpoint: str | None = None,
        num_ranks: int = 1,
        replay_timeout_s: float = _REPLAY_TIMEOUT_S,
    ) -> None:
        """`endpoint` and `replay_endpoint` are those of rank 0."""
        self.num_garbled = 0
        """Messages that were no batch."""
        self.num_batches = 0
        self.num_replays = self.num_unanswered = 0
        """Replays asked for, and those that did not come, or not to their end."""
        self.connected: set[int] = set()
        """Ranks whose publisher is connected now."""
        self._replica, self._consumer = replica, consumer
        self._endpoints = [endpoint_of_rank(endpoint, rank) for rank in range(num_ranks)]
        self._replay_endpoints = [
            None if replay_endpoint is None else endpoint_of_rank(replay_endpoint, rank)
            for rank in range(num_ranks)
        ]
        self._timeout_s = replay_timeout_s
        self._context: zmq.asyncio.Context | None = None
        self._requests: asyncio.Queue[ReplayRequest] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect. Returns at once: publishers that are not there yet are waited for.

        Raises `InvalidInput` for endpoints that are none.
        """
        self._context = zmq.asyncio.Context()
        try:
            for rank, endpoint in enumerate(self._endpoints):
                live = self._socket(zmq.SUB)
                live.subscribe(b"")
                monitor = live.get_monitor_socket(_EVENTS)
                live.connect(endpoint)
                self._tasks.append(asyncio.create_task(self._follow(live, rank)))
                self._tasks.append(asyncio.create_task(self._watch(monitor, rank)))
        except zmq.ZMQError as error:
            await self.close()
            raise InvalidInput(
                f"KV events of {self._replica} were to be read at {self._endpoints}: {error}; "
                "give endpoints such as tcp://10.0.0.1:5557 or ipc:///run/engine/kv.sock"
            ) from error
        self._tasks.append(asyncio.create_task(self._answer_requests()))

    async def close(self) -> None:
        """Stop following. Further calls do nothing."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks = []
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    def ask(self, request: ReplayRequest) -> None:
        """Have a replay asked for, after those asked for before."""
        self._requests.put_nowait(request)

    def _socket(self, kind: int) -> zmq.asyncio.Socket:
        assert self._context is not None
        socket = self._context.socket(kind)
        socket.rcvhwm = _MAX_QUEUED_BATCHES
        socket.maxmsgsize = MAX_BATCH_BYTES
        socket.ipv6 = True
        socket.linger = 0
        socket.reconnect_ivl, socket.reconnect_ivl_max = _RECONNECT_MS, _MAX_RECONNECT_MS
        socket.heartbeat_ivl = _HEARTBEAT_MS  # a peer that vanished is noticed, and connected anew
        return socket

    async def _follow(self, live: zmq.asyncio.Socket, rank: int) -> None:
        async for frames in _fairly(live, None):
            if len(frames) != 3 or len(frames[1]) != 8:
                self.num_garbled += 1
                continue
            number = int.from_bytes(frames[1], "big")
            self.num_batches += 1
            received = self._consumer.receive(self._replica, number, frames[2], socket_rank=rank)
            if received.replay is not None:
                self.ask(received.replay)

    async def _watch(self, monitor: zmq.asyncio.Socket, rank: int) -> None:
        """Begin with each connection: what came before the subscription was missed."""
        while True:
            event = parse_monitor_message(await monitor.recv_multipart())["event"]
            if event == zmq.EVENT_DISCONNECTED:
                self.connected.discard(rank)
                continue
            await asyncio.sleep(_SETTLE_S)
            self.connected.add(rank)
            self.ask(self._begun(SourceId(self._replica, rank)))

    def _begun(self, source: SourceId) -> ReplayRequest:
        """Begin with a publisher. One known before has most likely restarted with its engine.

        Where a replay can prove it, all of it is forgotten and asked for anew; where not, numbers
        and start times have to tell.
        """
        known = self._consumer.announced(source)
        can_prove = self._replay_endpoints[source.rank] is not None
        if known is not None and can_prove and known.order.last_seq is not None:
            return known.order.restart()
        return self._consumer.connect(source)

    async def _answer_requests(self) -> None:
        while True:
            request: ReplayRequest | None = await self._requests.get()
            while request is not None:
                is_answered = await self._replayed(request)
                self.num_replays += 1
                self.num_unanswered += not is_answered
                request = self._consumer.replay_ended(request, answered=is_answered)
                await asyncio.sleep(0)

    async def _replayed(self, request: ReplayRequest) -> bool:
        """Read one replay; say whether it came to its end."""
        rank = request.source.rank
        endpoint = self._replay_endpoints[rank] if 0 <= rank < len(self._replay_endpoints) else None
        if endpoint is None:
            return False
        with self._socket(zmq.DEALER) as dealer:
            dealer.connect(endpoint)
            await dealer.send_multipart((b"", request.from_seq.to_bytes(8, "big")))
            async for frames in _fairly(dealer, self._timeout_s):
                # Frames: empty, topic (which older publishers leave out), number, payload.
                if len(frames) not in {3, 4} or len(frames[-2]) != 8:
                    self.num_garbled += 1
                    continue
                number = int.from_bytes(frames[-2], "big", signed=True)
                if number == _END:
                    return True
                self._consumer.replayed(request, number, frames[-1])
        return False


def endpoint_of_rank(endpoint: str, rank: int) -> str:
    """Return where a data-parallel rank publishes, as vLLM places it: base port plus rank.

    Raises `InvalidInput` where there is no such place.
    """
    if rank == 0:
        return endpoint
    if endpoint.startswith("inproc://"):
        return f"{endpoint}_dp{rank}"
    host, _, port = endpoint.rpartition(":")
    if not endpoint.startswith("tcp://") or not port.isdecimal():
        raise InvalidInput(
            f"endpoint {endpoint!r} has no port to count ranks from; give tcp://HOST:PORT"
        )
    ports = publisher_ports(int(port), [rank])
    if ports is None:
        raise InvalidInput(f"endpoint {endpoint!r} has port 0, which the system chooses; name one")
    return f"{host}:{ports[0]}"


async def _fairly(
    socket: zmq.asyncio.Socket, timeout_s: float | None
) -> AsyncIterator[Sequence[Any]]:
    """Yield messages as they come, letting others run in between; ends when none comes in time."""
    turn_ends_s = time.monotonic() + _TURN_S
    while True:
        try:
            frames = await asyncio.wait_for(socket.recv_multipart(), timeout_s)
        except TimeoutError:
            if int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                continue  # it came while the event loop was held up
            return
        yield frames
        if time.monotonic() >= turn_ends_s:
            await asyncio.sleep(0)
            turn_ends_s = time.monotonic() + _TURN_S
