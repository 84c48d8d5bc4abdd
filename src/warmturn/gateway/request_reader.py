"""A client's bytes → requests, each with its whole body. Framing is llhttp's alone.

    feed ──▶ head (to the empty line) ──▶ llhttp ──▶ length ──▶ body, counted ──▶ llhttp ──▶ Request

llhttp is fed one message at a time, so that where it saw the end and what was counted must agree;
what follows waits (pipelining). Knows no socket: bytes in, requests or `Refused` out.
"""

import httptools

from warmturn.gateway.header_names import CREDENTIAL, FORWARDED, FRAMING, request_header
from warmturn.gateway.limits import Limits
from warmturn.gateway.turns import Refused

__all__ = ["BytesBehindEnd", "Request", "RequestReader"]

_END_OF_HEAD = b"\r\n\r\n"
_MAX_DIGITS = 18
"""Of a Content-Length: more cannot be meant, and would not be a 64-bit number."""
_PLAIN_CONNECTION = frozenset({"keep-alive", "close"})


class BytesBehindEnd(Exception):
    """More came than the one message that was to be read. Stops llhttp, never leaves a reader."""


class Request:
    """One request: as it was framed, its headers sorted by what becomes of them."""

    __slots__ = (
        "body",
        "credentials",
        "headers",
        "is_http_1_0",
        "keeps_alive",
        "lines",
        "method",
        "target",
    )

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.headers: dict[str, str] = {}
        """Lower-case names; of a repeated header the first value, of lists all."""
        self.lines: list[bytes] = []
        """What goes on: of each header its name, a colon, its value and CRLF."""
        self.credentials: list[bytes] = []
        """What goes on only where the replica has no key of its own, in the same form."""
        self.body = b""
        self.is_http_1_0 = False
        self.keeps_alive = False
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
        "_is_chunked",
        "_is_complete",
        "_limits",
        "_num_missing",
        "_num_scouted",
        "_parser",
        "_pieces",
        "_request",
        "_rest",
        "_scout",
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
        self._parser = httptools.HttpRequestParser(self)

    def _begin(self) -> None:
        self._request = Request()
        self._pieces: list[bytes] = []
        self._has_head = self._is_complete = self._has_excess = self._is_chunked = False
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
        self._request.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers of a chunked body are dropped."""
        if self._has_head:
            return
        request = self._request
        lower, fate = request_header(name)
        if lower not in request.headers:
            request.headers[lower] = value.decode("latin-1")
        elif fate == FRAMING:
            request.headers[lower] += ", " + value.decode("latin-1")
        if fate == FORWARDED:
            request.lines += (name, b": ", value, b"\r\n")
        elif fate == CREDENTIAL:
            request.credentials += (name, b": ", value, b"\r\n")

    def on_headers_complete(self) -> None:
        """Ask what llhttp forgets once the message is complete: `Connection: close`."""
        self._has_head = True
        self._request.keeps_alive = self._parser.should_keep_alive()

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
            if self._rest:
                data, self._rest = self._rest + data, b""
            end = data.find(_END_OF_HEAD, self._num_scouted and self._num_scouted - 3) + 4
            if end < 4:
                self._wait_for_head(data)
                return None
            self._read_head(data[:end])
            data = data[end:]
        self._read_body(data)
        return self._taken() if self._is_complete else None

    def close(self) -> None:
        """Let go of the parser, which holds this reader in turn. Nothing may be fed any more."""
        self._scout = None
        if hasattr(self, "_parser"):
            del self._parser

    # Head.

    def _wait_for_head(self, data: bytes) -> None:
        """Keep the begin of a head. A malformed one is refused now: it might never end."""
        self._check_head_size(len(data))
        if self._scout is None:
            self._scout = httptools.HttpRequestParser(object())
        _feed(self._scout, data[self._num_scouted :])
        self._rest, self._num_scouted = data, len(data)

    def _read_head(self, head: bytes) -> None:
        self._check_head_size(len(head))
        if self._num_scouted:
            self._scout, self._num_scouted = None, 0
        try:
            self._parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            self._read_without_upgrade()
        except httptools.HttpParserError as error:
            raise _malformed(error) from error
        if not self._has_head:
            raise Refused(400, "the request ends before its headers do", code=_MALFORMED)
        request = self._request
        request.method = self._parser.get_method()
        if not head.startswith(b"%b %b HTTP/" % (request.method, request.target)):
            # llhttp skips blank lines before it, and takes more spaces in it than two.
            raise Refused(400, "the request line is not 'POST /path HTTP/1.1'", code=_MALFORMED)
        self._frame()

    def _read_without_upgrade(self) -> None:
        """Have the body framed without the wish for another protocol, at which llhttp stops.

        Java's client sends `Upgrade: h2c` with its first request and goes on with HTTP/1.1. A new
        parser is told what frames the body and nothing else.
        """
        method, version = self._parser.get_method(), self._parser.get_http_version()
        if method == b"CONNECT":
            raise Refused(405, "CONNECT is not served: the gateway is no forward proxy")
        request = self._request
        lines = [f"{method.decode()} / HTTP/{version}"]
        framing = ("content-length", "transfer-encoding")
        lines += [f"{name}: {request.headers[name]}" for name in framing if name in request.headers]
        self._parser = httptools.HttpRequestParser(self)
        keeps_alive = request.keeps_alive
        target = request.target
        self._is_complete = False
        _feed(self._parser, "\r\n".join(lines).encode("latin-1") + _END_OF_HEAD)
        request.keeps_alive, request.target = keeps_alive, target

    def _frame(self) -> None:
        """Find out how the body is framed; refuse what a peer could frame otherwise."""
        request = self._request
        headers = request.headers
        version = self._parser.get_http_version()
        if version != "1.1":
            request.is_http_1_0 = True
            if version != "1.0":
                raise Refused(505, f"HTTP/{version} is not served; use HTTP/1.1")
        host = headers.get("host")
        if (host is None and version == "1.1") or (host is not None and "," in host):
            raise Refused(400, "the request needs one Host header", code=_MALFORMED)
        if (length := headers.get("content-length")) is not None:
            self._num_missing = self.num_body_bytes = _length_of(length)
            self._check_body_size()
        if "transfer-encoding" in headers:
            self._is_chunked = True
            if headers["transfer-encoding"].lower() != "chunked" or request.is_http_1_0:
                raise Refused(501, "of transfer encodings only 'chunked' in HTTP/1.1 is served")
        if "connection" in headers and headers["connection"].lower() not in _PLAIN_CONNECTION:
            _drop_listed(request)
        if "expect" in headers:
            is_asked = headers["expect"].lower() == "100-continue"
            self.awaits_continue = is_asked and not request.is_http_1_0
        self.is_in_body = True

    def _check_head_size(self, num_bytes: int) -> None:
        most = self._limits.max_head_bytes
        if num_bytes > most:
            raise Refused(431, f"the request's head has more than {most} bytes; send less")

    # Body.

    def _read_body(self, data: bytes) -> None:
        if self._is_chunked:
            self._read_chunks(data)
            return
        if len(data) > self._num_missing:
            data, self._rest = data[: self._num_missing], data[self._num_missing :]
        if data:
            self._num_missing -= len(data)
            _feed(self._parser, data)
        if self._is_complete is (self._num_missing > 0):
            raise Refused(400, "the body's length is not what its header says", code=_MALFORMED)

    def _read_chunks(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self._is_complete:
                raise _malformed(error) from error
            self._has_excess = True  # the request is whole: the error is what follows it
        self._check_body_size()

    def _check_body_size(self) -> None:
        most = self._limits.max_body_bytes
        if self.num_body_bytes > most:
            message = f"the body has {self.num_body_bytes} bytes or more, the gateway takes {most}"
            raise Refused(413, f"{message}; send less", code="body_too_large")

    def _taken(self) -> Request:
        request, pieces = self._request, self._pieces
        if pieces:
            request.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._has_excess:
            # What came behind a chunked body is lost in the parser: the connection is spent.
            request.keeps_alive = False
        self._begin()
        return request


_MALFORMED = "malformed_request"


def _feed(parser: httptools.HttpRequestParser, data: bytes) -> None:
    try:
        parser.feed_data(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise _malformed(error) from error


def _malformed(error: Exception) -> Refused:
    """Return the refusal of what llhttp refuses; its words name the rule, never the bytes."""
    return Refused(400, f"malformed HTTP request: {error}", code=_MALFORMED)


def _length_of(value: str) -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > _MAX_DIGITS:
        raise Refused(400, "Content-Length is not one plain number of bytes", code=_MALFORMED)
    return int(value)


def _drop_listed(request: Request) -> None:
    """Leave out what `Connection` names: it is for this hop alone."""
    listed = {word.strip().lower() for word in request.headers["connection"].split(",")}
    for lines in (request.lines, request.credentials):
        kept = [
            part
            for at in range(0, len(lines), 4)
            if lines[at].decode("latin-1").lower() not in listed
            for part in lines[at : at + 4]
        ]
        lines[:] = kept
