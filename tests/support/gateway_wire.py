"""Real sockets for the gateway's tests: fake replicas, a steering that does as told, raw clients."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import h11

from warmturn.fleet import SourceId
from warmturn.gateway.data_path import DataPath
from warmturn.gateway.limits import Limits
from warmturn.gateway.turns import Call, Outcome, Refused, Turn
from warmturn.gateway.upstream import UpstreamAddress
from warmturn.gateway.upstream_pool import UpstreamPool
from warmturn.session.identity import SessionIdentity
from warmturn.types import ReplicaId

HEAD = b"HTTP/1.1 200 OK\r\n"


def json_answer(data=None, *, status="200 OK", headers=b""):
    """A whole answer with a length."""
    body = json.dumps(data if data is not None else {"id": "cmpl-1", "usage": {"prompt_tokens": 3}})
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n".encode() + headers
    return head + b"content-length: %d\r\n\r\n" % len(body) + body.encode()


def stream_head(headers=b""):
    """The head of a stream of events."""
    return (
        HEAD
        + b"content-type: text/event-stream\r\n"
        + headers
        + b"transfer-encoding: chunked\r\n\r\n"
    )


def chunk(data):
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


TOKEN = b'data: {"id":"chat-1","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
USAGE = (
    b'data: {"id":"chat-1","choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":32}}}\n\n'
)
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"


@dataclass
class Seen:
    """One request as a replica got it, framed by h11."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self):
        return json.loads(self.body)


class FakeReplica:
    """Frames requests with h11; `answers` says what to send for each, in pieces.

    A piece is bytes, a number of seconds to wait, an `asyncio.Event` to wait for, or `CLOSE`.
    """

    CLOSE = object()
    RESET = object()

    def __init__(self, answer=None):
        self.seen: list[Seen] = []
        self.answer: Callable[[Seen], Sequence[object]] = answer or (lambda _seen: [json_answer()])
        self.num_connections = 0
        self.num_lost = 0
        self.num_errors = 0
        self.server = None
        self.port = 0
        self._writers = set()

    async def start(self, port=0):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def stop(self):
        self.server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader, writer):
        self.num_connections += 1
        number = self.num_connections
        self._writers.add(writer)
        try:
            await self._requests(reader, writer, number)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the loop's end cancels what is still served
        finally:
            self.num_lost += 1
            self._writers.discard(writer)
            writer.close()

    async def _requests(self, reader, writer, number):
        connection = h11.Connection(h11.SERVER)
        while True:
            request, body = None, b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    data = await reader.read(65536)
                    if not data and request is None:
                        return
                    connection.receive_data(data)
                elif isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    break
            headers = {k.decode(): v.decode("latin-1") for k, v in request.headers}
            seen = Seen(request.method.decode(), request.target.decode(), headers, body, number)
            self.seen.append(seen)
            # The answer's bytes are the test's: h11 only has to believe that one was sent.
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if not await self._send(self.answer(seen), reader, writer):
                return
            connection.start_next_cycle()

    async def _send(self, pieces, reader, writer):
        for piece in pieces:
            if piece is self.CLOSE:
                return False
            if piece is self.RESET:
                writer.transport.abort()
                return False
            if isinstance(piece, bytes):
                writer.write(piece)
                await writer.drain()
            elif isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                gone = asyncio.ensure_future(reader.read(1))
                done, _ = await asyncio.wait([gone], timeout=piece)
                if done:
                    return False
                gone.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await gone
        return True


@dataclass
class Ended:
    """One turn's end."""

    turn: Turn
    outcome: Outcome


@dataclass
class FakeSteering:
    """Round robin over `sources`; writes down everything it is told."""

    sources: list[SourceId] = field(default_factory=list)
    salt: str | None = None
    model: str | None = None
    wants_reply: bool = False
    refusal: Refused | None = None
    admit_after: asyncio.Event | None = None
    retries: bool = True
    calls: list[Call] = field(default_factory=list)
    told: list[tuple] = field(default_factory=list)
    ended_turns: list[Ended] = field(default_factory=list)
    _count: itertools.count = field(default_factory=itertools.count)

    def admit(self, call, now):
        self.calls.append(call)
        if self.refusal is not None:
            raise self.refusal
        turn = Turn(
            call, SessionIdentity("s", "header"), self.model, self.salt, 10, next(self._count), True
        )
        turn.wants_reply = self.wants_reply
        return turn if self.admit_after is None else self._later(turn)

    async def _later(self, turn):
        await self.admit_after.wait()
        return turn

    def place(self, turn, now):
        left = [source for source in self.sources if source not in turn.tried]
        if not left:
            raise Refused(503, "no replica is left", retry_after_s=2)
        source = left[turn.number % len(left)]
        turn.tried.append(source)
        return source

    def response_headers(self, turn):
        return b"x-warmturn-replica: %b\r\n" % str(turn.source).encode()

    def sent(self, turn, now):
        self.told.append(("sent", str(turn.source)))

    def first_byte(self, turn, now):
        self.told.append(("first_byte", str(turn.source)))

    def failed(self, turn, why, now):
        self.told.append(("failed", why))
        return self.retries

    def ended(self, turn, outcome, now):
        self.ended_turns.append(Ended(turn, outcome))


@dataclass
class Wire:
    """A data path with its steering, replicas and port."""

    path: DataPath
    steering: FakeSteering
    replicas: list[FakeReplica]
    pools: dict[ReplicaId, UpstreamPool]
    port: int
    clients: list = field(default_factory=list)

    async def client(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
        self.clients.append(RawClient(reader, writer))
        return self.clients[-1]

    @property
    def outcome(self) -> Outcome:
        """Of the only turn there was."""
        (ended,) = self.steering.ended_turns
        return ended.outcome


class RawClient:
    """Sends bytes; reads answers with h11, or bytes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self._h11 = h11.Connection(h11.CLIENT)

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def post(self, body, *, path="/v1/chat/completions", headers=b"", method=b"POST"):
        await self.send(request(body, path=path, headers=headers, method=method))
        return await self.answer(method=method.decode())

    async def answer(self, method="POST"):
        """Read one answer: status, headers, body. Raises h11's error where it is malformed."""
        connection = h11.Connection(h11.CLIENT)
        connection.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
        connection.send(h11.EndOfMessage())
        if self._h11.trailing_data[0]:  # to h11, no bytes are the end
            connection.receive_data(self._h11.trailing_data[0])
        response, body = None, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await self.reader.read(65536))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, h11.ConnectionClosed):
                raise AssertionError("the connection was closed before an answer")
        self._h11 = connection
        headers = {k.decode(): v.decode("latin-1") for k, v in response.headers}
        return Answer(response.status_code, headers, body)

    async def read_all(self, timeout_s=5):
        """Read until the gateway closes."""
        async with asyncio.timeout(timeout_s):
            return await self.reader.read(-1)

    def close(self):
        self.writer.transport.abort()


@dataclass
class Answer:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self):
        return json.loads(self.body)["error"]


def request(body, *, path="/v1/chat/completions", headers=b"", method=b"POST", version=b"1.1"):
    """A request's bytes."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    start = b"%b %b HTTP/%b\r\nHost: gateway\r\n" % (method, path.encode(), version)
    length = b"" if method == b"GET" else b"Content-Length: %d\r\n" % len(body)
    return start + headers + length + b"\r\n" + body


@contextlib.asynccontextmanager
async def wire(
    *answers, limits=None, steering=None, local=None, allowed=(), **address
) -> AsyncIterator[Wire]:
    """A data path over one fake replica per answer."""
    replicas = [await FakeReplica(answer).start() for answer in answers or (None,)]
    names = [ReplicaId(f"r{n}") for n in range(len(replicas))]
    steering = steering or FakeSteering()
    steering.sources = [SourceId(name) for name in names]
    limits = limits or Limits()
    pools = {
        name: UpstreamPool(UpstreamAddress("127.0.0.1", replica.port, **address), limits)
        for name, replica in zip(names, replicas, strict=True)
    }
    path = DataPath(steering, pools, limits, allowed_paths=allowed, local=local)
    port = await path.start("127.0.0.1", 0)
    made = Wire(path, steering, replicas, pools, port)
    try:
        yield made
    finally:
        for client in made.clients:
            client.close()
        await path.close()
        for replica in replicas:
            await replica.stop()


async def until(condition, timeout_s=5.0):
    """Wait until `condition()` holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)
