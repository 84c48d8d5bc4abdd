"""A replica's bytes → the head and the pieces of its answer. Framing is llhttp's alone.

Interim answers (1xx) are swallowed. Bytes behind the end of an answer are never part of it: they
end the connection. Knows no socket.
"""

import httptools

from warmturn.errors import PeerError
from warmturn.gateway.request_reader import BytesBehindEnd, Headers

__all__ = ["GarbledAnswer", "ResponseReader"]

_NO_BODY = frozenset({204, 304})


class GarbledAnswer(PeerError):
    """What the replica sent is no HTTP answer."""


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
        "headers",
        "is_chunked",
        "is_complete",
        "keeps_alive",
        "length",
        "num_bytes",
        "on_body",
        "pieces",
        "status",
    )

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # called by the parser, without a frame of ours
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self.start()

    def start(self, *, is_head: bool = False) -> None:
        """Expect an answer; to a HEAD request it has no body, whatever its headers say."""
        self.pieces.clear()
        self.headers: Headers = []
        self.status = 0
        self.length: int | None = None
        self.num_bytes = 0
        self.has_head = self.is_complete = self.has_excess = False
        self.keeps_alive = self.ends_with_connection = self.is_chunked = False
        self._is_interim = False
        self._awaits_body = not is_head

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """Stop at bytes behind the end, before they could pass for more of the answer."""
        if self.is_complete:
            raise BytesBehindEnd

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped."""
        if not self.has_head:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Read status and framing."""
        assert self._parser is not None
        if self.has_head:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._is_interim = True
            self.headers.clear()
            return
        self.status = status
        # Valid only here: at the end of the message llhttp has forgotten it.
        self.keeps_alive = self._parser.should_keep_alive()
        for name, value in self.headers:
            lower = name.lower()
            if lower == b"content-length":
                self.length = int(value)
            elif lower == b"transfer-encoding":
                self.is_chunked = value.lower().endswith(b"chunked")
        self.has_head = True
        if not self._awaits_body:
            self.is_complete = True
            self.keeps_alive = False  # the parser waits for a body that will not come
        self.ends_with_connection = (
            self.length is None and not self.is_chunked and status not in _NO_BODY
        )

    def on_message_complete(self) -> None:
        """Note the end of the answer, unless it was an interim one."""
        if self._is_interim:
            self._is_interim = False
        else:
            self.is_complete = True

    # What the connection calls.

    def feed(self, data: bytes) -> None:
        """Take bytes. Raises `GarbledAnswer` where they are no answer."""
        assert self._parser is not None  # nothing is fed after `close`
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
        """Let go of the parser, which holds this reader in turn."""
        self._parser = None
