"""Publish KV events over ZMQ as vLLM does, from a thread that can never hold up the engine.

Live: PUB, frames `[topic, sequence number, payload]`. Missed batches: ROUTER, asked with
`[b"", first wanted number]`, answers `[b"", topic, number, payload]` per batch still buffered,
then `[b"", b"", -1, b""]`. Sequence numbers are 8 bytes, big-endian, and begin at 0 with every
publisher.
"""

import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import zmq

from warmturn.cache.events import CacheEvent, encode_batch
from warmturn.errors import InvalidInput

__all__ = ["EventPublisher", "binds"]

_log = logging.getLogger(__name__)

_END_OF_REPLAY: Final = (-1).to_bytes(8, "big", signed=True)
_LINGER_MS: Final = 1_000  # what a subscriber has to take the last batches after close()
_NOT_OWNER: Final = 0o177  # as umask: leaves mode 0600


class _Queued(NamedTuple):
    sequence: int
    timestamp_s: float
    events: tuple[CacheEvent, ...]


class _Sent(NamedTuple):
    sequence: int
    payload: bytes


def binds(endpoint: str) -> bool:
    """Tell whether the publisher binds `endpoint`; otherwise it connects to it.

    vLLM's rule: a wildcard, `::`, ipc and inproc are bound. A plain `tcp://host:port` is
    connected to, so there the subscriber binds. The replay endpoint is always bound.
    """
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))


class EventPublisher:
    """One engine's event stream. Starts at once; close it, or use it as a context manager.

    A batch that finds the queue full is dropped and counted in `num_dropped`; its sequence
    number is used up, so that subscribers see the gap. For replay the newest batches are kept,
    at most `buffer_batches` and `buffer_bytes`.

    Sockets of ipc endpoints get mode 0600: the events carry prompts and salts in clear, and
    for tcp, which anybody who reaches the port can read, a warning is logged.
    Raises `InvalidInput` where an endpoint cannot be used.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        replay_endpoint: str | None = None,
        topic: str = "",
        dp_rank: int = 0,
        int_hashes: bool = True,
        buffer_batches: int = 10_000,  # vLLM's default
        buffer_bytes: int = 256 * 2**20,
        queue_batches: int = 10_000,  # a minute and more of engine steps
    ) -> None:
        self._topic = topic.encode()
        self._dp_rank = dp_rank
        self._int_hashes = int_hashes
        self._queue_batches = queue_batches
        self._queue: deque[_Queued] = deque()
        self._buffer = _ReplayBuffer(max_batches=buffer_batches, max_bytes=buffer_bytes)
        self._lock = threading.Lock()  # guards the next four and the wake-up pipe
        self._next_sequence = 0
        self._num_dropped = 0
        self._closed = False
        self._socket_files: list[Path] = []

        # Its own context: ending it waits until every socket file is gone.
        self._context = zmq.Context()
        try:
            self._live = self._open(zmq.PUB, endpoint, bind=binds(endpoint), hwm=buffer_batches)
            self._replay = (
                None
                if replay_endpoint is None
                # A full replay must fit: a ROUTER drops what exceeds its mark.
                else self._open(zmq.ROUTER, replay_endpoint, bind=True, hwm=buffer_batches + 1)
            )
        except BaseException:
            self._release_sockets(linger_ms=0)
            raise
        self.endpoint = _last_endpoint(self._live)
        """What subscribers use, wildcards resolved."""
        self.replay_endpoint = None if self._replay is None else _last_endpoint(self._replay)

        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._thread = threading.Thread(target=self._run, name="kv-event-publisher", daemon=True)
        self._thread.start()

    @property
    def num_dropped(self) -> int:
        """Batches never sent: the queue was full, an event was broken, or it came after close()."""
        return self._num_dropped

    def publish(self, events: Sequence[CacheEvent]) -> None:
        """Queue one batch and return at once; nothing is sent for an empty one.

        The events' arrays must not be changed afterwards.
        """
        if not events:
            return
        with self._lock:
            sequence = self._next_sequence
            self._next_sequence += 1
            if self._closed or len(self._queue) >= self._queue_batches:
                self._num_dropped += 1
                return
            self._queue.append(_Queued(sequence, time.time(), tuple(events)))
            self._wake()

    def close(self) -> None:
        """Send what is queued, end the thread, remove socket files. Further calls do nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._wake()
        self._thread.join()
        os.close(self._wake_reader)
        os.close(self._wake_writer)
        self._release_sockets(linger_ms=_LINGER_MS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- the publisher's thread -----------------------------------------------------------------

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake_reader, zmq.POLLIN)
        if self._replay is not None:
            poller.register(self._replay, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            closed = self._closed  # read before the queue: what was queued before is still sent
            with suppress(BlockingIOError):
                os.read(self._wake_reader, 4096)
            self._send_queued()
            if closed:
                return
            if self._replay is not None and self._replay in ready:
                self._answer_replay(self._replay)

    def _send_queued(self) -> None:
        while self._queue:
            queued = self._queue.popleft()
            try:
                payload = self._payload(queued)
            except Exception:  # noqa: BLE001 - one broken event must not end the stream
                _log.exception("a batch of KV events could not be encoded and is dropped")
                with self._lock:
                    self._num_dropped += 1
                continue
            self._buffer.append(_Sent(queued.sequence, payload))
            # A PUB socket never blocks: a subscriber that lags too far loses batches.
            self._live.send_multipart((self._topic, _eight_bytes(queued.sequence), payload))

    def _payload(self, queued: _Queued) -> bytes:
        return encode_batch(
            queued.events,
            timestamp_s=queued.timestamp_s,
            dp_rank=self._dp_rank,
            int_hashes=self._int_hashes,
        )

    def _answer_replay(self, replay: "zmq.Socket[bytes]") -> None:
        frames = replay.recv_multipart()
        if len(frames) != 3 or frames[1] != b"" or len(frames[2]) != 8:
            _log.warning(
                "a replay request of %d frames was ignored; send an empty frame and 8 bytes",
                len(frames) - 1,
            )
            return
        client, first = frames[0], int.from_bytes(frames[2], "big")
        for sequence, payload in self._buffer.since(first):
            replay.send_multipart((client, b"", self._topic, _eight_bytes(sequence), payload))
        replay.send_multipart((client, b"", b"", _END_OF_REPLAY, b""))

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # a full pipe has woken the thread already
            os.write(self._wake_writer, b"\0")

    # --- opening and releasing --------------------------------------------------------------------------------

    def _open(self, kind: int, endpoint: str, *, bind: bool, hwm: int) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.sndhwm = hwm
        socket.ipv6 = "[" in endpoint or "::" in endpoint
        try:
            if not bind:
                socket.connect(endpoint)
            elif endpoint.startswith("ipc://"):
                self._bind_for_owner_only(socket, endpoint)
            else:
                socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise InvalidInput(
                f"KV events were to be served at {endpoint!r}: {error}; "
                "choose a free endpoint such as ipc:///run/user/1000/kv-events.sock"
            ) from error
        if not _last_endpoint(socket).startswith(("ipc:///", "inproc://")):
            _log.warning(
                "KV events at %s carry prompts and salts in clear to anybody who can reach it; "
                "prefer a socket file, ipc:///path",
                endpoint,
            )
        return socket

    def _bind_for_owner_only(self, socket: "zmq.Socket[bytes]", endpoint: str) -> None:
        """Bind a socket file that nobody else can open, not even for a moment."""
        path = Path(endpoint.removeprefix("ipc://"))
        if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
            raise InvalidInput(
                f"KV events were to be served at {endpoint!r}, but a file that is no socket "
                "is there; choose another path"
            )
        umask = os.umask(_NOT_OWNER)
        try:
            socket.bind(endpoint)
        finally:
            os.umask(umask)
        bound = _last_endpoint(socket).removeprefix("ipc://")
        if bound.startswith("@"):  # an abstract name: no file, hence no mode; warned about
            return
        self._socket_files.append(Path(bound))

    def _release_sockets(self, *, linger_ms: int) -> None:
        self._context.destroy(linger=linger_ms)
        for path in self._socket_files:
            path.unlink(missing_ok=True)


class _ReplayBuffer:
    """The newest batches, bounded in number and bytes; only the thread touches it."""

    def __init__(self, *, max_batches: int, max_bytes: int) -> None:
        self._max_batches, self._max_bytes = max_batches, max_bytes
        self._sent: deque[_Sent] = deque()
        self._num_bytes = 0

    def append(self, sent: _Sent) -> None:
        self._sent.append(sent)
        self._num_bytes += len(sent.payload)
        while self._sent and (
            len(self._sent) > self._max_batches or self._num_bytes > self._max_bytes
        ):
            self._num_bytes -= len(self._sent.popleft().payload)

    def since(self, first: int) -> list[_Sent]:
        return [sent for sent in self._sent if sent.sequence >= first]


def _eight_bytes(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big")


def _last_endpoint(socket: "zmq.Socket[bytes]") -> str:
    return socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
