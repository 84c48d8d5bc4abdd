"""A replica's bytes → the head and the pieces of its answer. Framing is llhttp's alone.

Interim answers (1xx) are swallowed. Bytes behind the end of an answer are never part of it: they
end the connection. Knows no socket.
"""

import httptools

from warmturn.errors import GarbledAnswer
from warmturn.gateway.header_names import FORWARDED, FRAMING, READ, response_header
from warmturn.gateway.request_reader import BytesBehindEnd

__all__ = ["ResponseReader"]

_NO_BODY = frozenset({204, 304})


class ResponseReader:
    """Frames the answers of one connection, one after the other.

    `pieces` fills as the body comes; whoever reads them clears the list. After an answer is
    complete, `start` makes the reader ready for the next.
    """

    __slots__ = (
        "_awaits_body",
        "_is_interim",
        "_parser",
        "ends_with_connection",
        "has_excess",
        "has_head",
        "is_chunked",
        "is_complete",
        "is_encoded",
        "is_stream",
        "keeps_alive",
        "length",
        "lines",
        "num_bytes",
        "on_body",
        "pieces",
        "status",
    )

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # called by the parser, without a frame of ours
        self.start()
        self._parser = httptools.HttpResponseParser(self)

    def start(self, *, is_head: bool = False) -> None:
        """Expect an answer; to a HEAD request it has no body, whatever its headers say."""
        self.lines: list[bytes] = []
        """Headers that go on: of each its name, a colon, its value and CRLF."""
        self.status = 0
        self.length: int | None = None
        self.num_bytes = 0
        self.has_head = self.is_complete = self.has_excess = False
        self.keeps_alive = self.ends_with_connection = self.is_chunked = False
        self.is_stream = self.is_encoded = False
        """Server-sent events; a body that is compressed."""
        self._is_interim = False
        self._awaits_body = not is_head

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """Stop at bytes behind the end, before they could pass for more of the answer."""
        if self.is_complete:
            raise BytesBehindEnd

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped."""
        if self.has_head:
            return
        lower, fate = response_header(name)
        if fate in {FORWARDED, READ}:
            self.lines += (name, b": ", value, b"\r\n")
        if fate >= FRAMING:
            self._read_header(lower, value)

    def _read_header(self, lower: str, value: bytes) -> None:
        if lower == "content-length":
            self.length = int(value)
        elif lower == "transfer-encoding":
            self.is_chunked = value.lower().endswith(b"chunked")
        elif lower == "content-type":
            self.is_stream = value[:17].lower() == b"text/event-stream"
        else:
            self.is_encoded = value.lower() != b"identity"

    def on_headers_complete(self) -> None:
        """Read status and framing."""
        status = self._parser.get_status_code()
        if status < 200:
            self.start(is_head=not self._awaits_body)
            self._is_interim = True
            return
        self.status = status
        self.has_head = True
        # Valid only here: at the end of the message llhttp has forgotten it.
        self.keeps_alive = self._parser.should_keep_alive()
        if self.length is None and not self.is_chunked and status not in _NO_BODY:
            self.ends_with_connection = True
        if not self._awaits_body:
            self.is_complete = True
            self.keeps_alive = False  # the parser waits for a body that will not come

    def on_message_complete(self) -> None:
        """Note the end of the answer, unless it was an interim one."""
        if self._is_interim:
            self._is_interim = False
        else:
            self.is_complete = True

    # What the connection calls.

    def feed(self, data: bytes) -> None:
        """Take bytes. Raises `GarbledAnswer` where they are no answer."""
        self.num_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.is_complete:
                raise GarbledAnswer(f"malformed HTTP answer: {error}") from error
            self.has_excess = True

    def finish(self) -> bool:
        """Say whether the answer is complete now that the connection has ended."""
        if self.has_head and self.ends_with_connection:
            self.is_complete = True
        return self.is_complete

    def close(self) -> None:
        """Let go of the parser, which holds this reader in turn. Nothing may be fed any more."""
        if hasattr(self, "_parser"):
            del self._parser
