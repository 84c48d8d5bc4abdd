"""A client's bytes → requests, each with its whole body. Framing is llhttp's alone.

    feed ──▶ head (to the empty line) ──▶ llhttp ──▶ length ──▶ body, counted ──▶ llhttp ──▶ Request

llhttp is fed one message at a time, so that where it saw the end and what was counted must agree;
what follows waits (pipelining). Knows no socket: bytes in, requests or `Refused` out.
"""

from dataclasses import dataclass

import httptools

from warmturn.gateway.limits import Limits
from warmturn.gateway.turns import Refused

__all__ = ["BytesBehindEnd", "Headers", "Request", "RequestReader"]

Headers = list[tuple[bytes, bytes]]
"""Names and values, verbatim and in order."""

_END_OF_HEAD = b"\r\n\r\n"
_MAX_DIGITS = 18
"""Of a Content-Length: more cannot be meant, and would not be a 64-bit number."""
_UPGRADES = frozenset({b"upgrade", b"http2-settings", b"connection"})


class BytesBehindEnd(Exception):
    """More came than the one message that was to be read."""


@dataclass(slots=True)
class Request:
    """One request as framed."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes
    is_http_1_0: bool
    keeps_alive: bool
    """The client lets the connection be used again."""


class RequestReader:
    """Frames the requests of one connection.

    Invariants
    1. llhttp has seen exactly the bytes of the request being read; later ones are in `_rest`.
    2. `num_body_bytes` is what the body takes: as announced, or of a chunked one what has come.
    3. After `Refused` the connection is spent: nothing more may be fed.
    """

    __slots__ = (
        "_has_excess",
        "_has_head",
        "_headers",
        "_is_chunked",
        "_is_complete",
        "_keeps_alive",
        "_limits",
        "_num_missing",
        "_num_scouted",
        "_parser",
        "_pieces",
        "_rest",
        "_scout",
        "_target",
        "awaits_continue",
        "is_in_body",
        "num_body_bytes",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rest = b""
        self._scout: httptools.HttpRequestParser | None = None
        self._num_scouted = 0
        self._begin()
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def _begin(self) -> None:
        self._target = b""
        self._headers: Headers = []
        self._pieces: list[bytes] = []
        self._has_head = self._is_complete = self._has_excess = False
        self._is_chunked = self._keeps_alive = False
        self._num_missing = 0
        self.is_in_body = False
        self.awaits_continue = False
        """The client sends its body only when it is told to."""
        self.num_body_bytes = 0

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """Stop at a second message in what was fed for one: only behind a chunked body."""
        if self._is_complete:
            raise BytesBehindEnd

    def on_url(self, part: bytes) -> None:
        """Take the request's target, as sent."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers of a chunked body are dropped."""
        if not self._has_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Ask what llhttp forgets once the message is complete: `Connection: close`."""
        self._has_head = True
        self._keeps_alive = self._running.should_keep_alive()

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body, chunks already undone."""
        self._pieces.append(piece)
        if self._is_chunked:
            self.num_body_bytes += len(piece)

    def on_message_complete(self) -> None:
        """Note that the body is complete."""
        self._is_complete = True

    # What the connection calls.

    @property
    def num_waiting_bytes(self) -> int:
        """Bytes that came and are in no request yet."""
        return len(self._rest)

    @property
    def is_idle(self) -> bool:
        """Nothing of a next request has come."""
        return not self._rest and not self.is_in_body

    def hold(self, data: bytes) -> None:
        """Keep bytes that came while a request is being answered."""
        self._rest += data

    def feed(self, data: bytes) -> Request | None:
        """Return the next request if `data` completes it; what follows it is kept.

        Raises `Refused` where it is malformed or over a limit.
        """
        if not self.is_in_body:
            head, data = self._split_head(data)
            if not head:
                return None
            self._read_head(head)
        self._read_body(data)
        return self._taken() if self._is_complete else None

    def close(self) -> None:
        """Let go of the parser, which holds this reader in turn."""
        self._parser = self._scout = None

    def _split_head(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the head and what follows it; nothing while it is not complete."""
        if self._rest:
            data = self._rest + data
        if not self._num_scouted and data[:1] in {b"\r", b"\n"}:
            data = data.lstrip(b"\r\n")  # blank lines before a request mean nothing
        end = data.find(_END_OF_HEAD, max(0, self._num_scouted - 3)) + 4
        if end > 3:
            self._rest, self._scout, self._num_scouted = b"", None, 0
            self._check_head_size(end)
            return (data, b"") if end == len(data) else (data[:end], data[end:])
        self._rest = data
        self._check_head_size(len(data))
        self._scout_head(data[self._num_scouted :])
        self._num_scouted = len(data)
        return b"", b""

    def _scout_head(self, new: bytes) -> None:
        """Refuse a malformed head before its end: one with bare line feeds would never end."""
        if self._scout is None:
            self._scout = httptools.HttpRequestParser(object())
        _feed(self._scout, new)

    def _read_head(self, head: bytes) -> None:
        try:
            self._running.feed_data(head)
        except httptools.HttpParserUpgrade:
            self._read_without_upgrade()
        except httptools.HttpParserError as error:
            raise _malformed(error) from error
        if not self._has_head:
            raise Refused(400, "the request ends before its headers do")
        self._frame()

    def _read_without_upgrade(self) -> None:
        """Read a head again without its wish for another protocol, at which llhttp stops.

        Java's client sends `Upgrade: h2c` with its first request and goes on with HTTP/1.1.
        """
        method, version = self._running.get_method(), self._running.get_http_version()
        if method == b"CONNECT":
            raise Refused(405, "CONNECT is not served: the gateway is no forward proxy")
        headers = [pair for pair in self._headers if pair[0].lower() not in _UPGRADES]
        if not self._keeps_alive:
            headers.append((b"Connection", b"close"))
        lines = [b"%b %b HTTP/%b" % (method, self._target, version.encode())]
        lines += [b"%b: %b" % pair for pair in headers]
        self._begin()
        self._parser = httptools.HttpRequestParser(self)
        _feed(self._parser, b"\r\n".join(lines) + _END_OF_HEAD)

    def _frame(self) -> None:
        """Find out how the body is framed; refuse what a peer could frame otherwise."""
        version = self._running.get_http_version()
        num_hosts = 0
        for name, value in self._headers:
            match name.lower():
                case b"content-length":
                    self._num_missing = _length_of(value)
                case b"transfer-encoding":
                    self._is_chunked = True
                    if value.lower() != b"chunked":
                        raise Refused(501, "of transfer encodings only 'chunked' is served")
                case b"host":
                    num_hosts += 1
                case b"expect":
                    self.awaits_continue = value.lower() == b"100-continue" and version == "1.1"
        if version not in {"1.0", "1.1"}:
            raise Refused(505, f"HTTP/{version} is not served; use HTTP/1.1")
        if num_hosts > 1 or (num_hosts == 0 and version == "1.1"):
            raise Refused(400, f"the request has {num_hosts} Host headers; send one")
        if self._is_chunked and version == "1.0":
            raise Refused(400, "HTTP/1.0 knows no Transfer-Encoding; send a Content-Length")
        self.num_body_bytes = self._num_missing
        self._check_body_size()
        self.is_in_body = True

    def _read_body(self, data: bytes) -> None:
        if self._is_chunked:
            self._read_chunks(data)
            return
        if len(data) > self._num_missing:
            data, self._rest = data[: self._num_missing], data[self._num_missing :]
        if data:
            self._num_missing -= len(data)
            _feed(self._running, data)
        if self._is_complete is (self._num_missing > 0):
            raise Refused(400, "the body's length is not what its header says")

    def _read_chunks(self, data: bytes) -> None:
        try:
            self._running.feed_data(data)
        except httptools.HttpParserError as error:
            if not self._is_complete:
                raise _malformed(error) from error
            self._has_excess = True  # the request is whole: the error is what follows it
        self._check_body_size()

    def _taken(self) -> Request:
        parser = self._running
        request = Request(
            parser.get_method(),
            self._target,
            self._headers,
            self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces),
            parser.get_http_version() == "1.0",
            # What came behind a chunked body is lost in the parser: the connection is spent.
            self._keeps_alive and not self._has_excess,
        )
        self._begin()
        return request

    @property
    def _running(self) -> httptools.HttpRequestParser:
        assert self._parser is not None  # nothing is fed after `close`
        return self._parser

    def _check_head_size(self, num_bytes: int) -> None:
        most = self._limits.max_head_bytes
        if num_bytes > most:
            raise Refused(431, f"the request's head has more than {most} bytes; send less")

    def _check_body_size(self) -> None:
        most = self._limits.max_body_bytes
        if self.num_body_bytes > most:
            message = f"the body has {self.num_body_bytes} bytes or more, the gateway takes {most}"
            raise Refused(413, f"{message}; send less", code="body_too_large")


def _feed(parser: httptools.HttpRequestParser, data: bytes) -> None:
    try:
        parser.feed_data(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise _malformed(error) from error


def _malformed(error: Exception) -> Refused:
    """Return the refusal of what llhttp refuses; its words name the rule, never the bytes."""
    return Refused(400, f"malformed HTTP request: {error}", code="malformed_request")


def _length_of(value: bytes) -> int:
    if not value.isdigit() or len(value) > _MAX_DIGITS:
        raise Refused(400, "Content-Length is not a plain number of bytes")
    return int(value)
