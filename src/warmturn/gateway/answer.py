"""An answer on its way to the client: its head rewritten, its body framed anew, its usage read.

    ResponseReader.pieces ──▶ StreamUsage (streams: whole events) ──▶ chunk, or plain ──▶ client
                         └──▶ kept (bounded): usage and id of an answer in one piece, `Outcome.reply`

Knows no socket: what to write is returned.
"""

from enum import Enum

from warmturn.formats import AnswerUsage, StreamUsage, read_answer_usage
from warmturn.gateway.call_body import wants_usage
from warmturn.gateway.refusals import STATUS_LINES, stream_failure
from warmturn.gateway.response_reader import ResponseReader
from warmturn.gateway.turns import Api, Turn

__all__ = ["RelayedAnswer"]

_MAX_USAGE_BYTES = 262_144
"""Of an answer in one piece kept for its usage; of a longer one the tail."""
_TAIL_PIECES = 16


class _Framing(Enum):
    LENGTH = "its own Content-Length"
    CHUNKED = "chunks of ours"
    TO_END = "the connection's end"


class RelayedAnswer:
    """One answer. Made when its first body byte is there, or its end."""

    __slots__ = (
        "_api",
        "_framing",
        "_is_whole",
        "_kept",
        "_max_kept",
        "_num_kept",
        "_reader",
        "_scan",
        "_wants_reply",
        "status",
    )

    def __init__(
        self,
        reader: ResponseReader,
        turn: Turn,
        *,
        is_http_1_0: bool,
        is_head: bool,
        max_reply_bytes: int,
    ) -> None:
        self._reader = reader
        self._api = turn.call.api
        self.status = status = reader.status
        """What the client has seen."""
        self._framing = _Framing.LENGTH
        if reader.length is None and not is_head and status not in {204, 304}:
            self._framing = _Framing.TO_END if is_http_1_0 else _Framing.CHUNKED
        self._scan: StreamUsage | None = None
        if reader.is_stream and not reader.is_encoded:
            # Only OpenAI's two have an event of usage alone, and only where it was asked for.
            is_shown = self._api not in {Api.CHAT, Api.COMPLETIONS} or wants_usage(turn.call)
            self._scan = StreamUsage(shown=is_shown)
        self._wants_reply = turn.wants_reply
        self._kept: list[bytes] | None = None
        if turn.wants_reply or not reader.is_stream:
            self._kept = []
        self._max_kept = max_reply_bytes if turn.wants_reply else _MAX_USAGE_BYTES
        self._num_kept = 0
        self._is_whole = True

    def head(self, added: bytes, *, keeps_alive: bool) -> bytes:
        """Return status and headers, with the lines `added` (each ended by CRLF)."""
        reader = self._reader
        framing = b""
        if self._framing is _Framing.CHUNKED:
            framing = b"transfer-encoding: chunked\r\n"
        elif reader.length is not None and reader.status != 204:
            framing = b"content-length: %d\r\n" % reader.length
        return b"".join(
            (
                STATUS_LINES.get(reader.status) or b"HTTP/1.1 %d \r\n" % reader.status,
                *reader.lines,
                added,
                framing,
                b"\r\n" if keeps_alive else b"connection: close\r\n\r\n",
            )
        )

    @property
    def needs_close(self) -> bool:
        """The client learns the end of the body by the end of the connection."""
        return self._framing is _Framing.TO_END

    def take(self) -> bytes:
        """Return what the client gets for what has come."""
        pieces = self._reader.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._scan is not None:
            data = self._scan.feed(data)
        if self._kept is not None:
            self._keep(data)
        return self._framed(data) if self._framing is _Framing.CHUNKED else data

    def end(self) -> bytes:
        """Return what ends a complete answer."""
        rest = b""
        if self._scan is not None and (held := self._scan.finish()):
            self._keep(held)
            rest = self._framed(held)
        return rest + self._last_chunk

    def cut(self, message: str) -> bytes | None:
        """Return what ends an answer whose replica failed; None where that cannot be said in it.

        The begin of an event that never became whole is left out.
        """
        if self._scan is None or self._framing is _Framing.LENGTH:
            return None
        return self._framed(stream_failure(message, self._api)) + self._last_chunk

    def usage(self) -> AnswerUsage:
        """Return what the answer says of itself, as far as it has come."""
        if self._scan is not None:
            return self._scan.usage
        return read_answer_usage(b"".join(self._kept or ()), is_tail=not self._is_whole)

    def reply(self) -> bytes | None:
        """Return the body as relayed; None where nobody wants it or it was too long."""
        if not self._wants_reply or not self._is_whole:
            return None
        return b"".join(self._kept or ())

    @property
    def _last_chunk(self) -> bytes:
        return b"0\r\n\r\n" if self._framing is _Framing.CHUNKED else b""

    def _framed(self, data: bytes) -> bytes:
        if data and self._framing is _Framing.CHUNKED:
            return b"%x\r\n%b\r\n" % (len(data), data)
        return data

    def _keep(self, data: bytes) -> None:
        if self._kept is None:
            return
        self._kept.append(data)
        self._num_kept += len(data)
        if self._num_kept > self._max_kept:
            self._is_whole = False
            if self._scan is not None:
                self._kept = None
            else:
                del self._kept[:-_TAIL_PIECES]
