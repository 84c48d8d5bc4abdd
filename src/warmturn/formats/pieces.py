"""Bytes of a log to its pieces: lines, or the objects of a JSON array; one at a time.

Compression is known by its first bytes, not by a file's name. A piece longer than
`MAX_PIECE_BYTES` is a `BadLine`, and is passed over without being kept.
"""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from warmturn.errors import MissingExtra
from warmturn.formats.record import BadLine

__all__ = ["MAX_PIECE_BYTES", "Piece", "pieces"]

MAX_PIECE_BYTES = 64 * 2**20
"""A million tokens of text are about 5 MB; token ids as text about 7 MB."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 2**18

_ARRAY = re.compile(rb"\s*(?:\[\s*(?:[{\]]|\Z)|\{\s*[\r\n])")
"""How a JSON array begins, or an object written over several lines."""

_TO_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""All up to the next bracket, texts skipped whole; or up to a text that goes on in the
next chunk."""
_IN_TEXT = re.compile(rb'["\\]')


@dataclass(frozen=True, slots=True)
class Piece:
    """One line, or one value of a JSON array, with its number from 1."""

    number: int
    data: bytes


def pieces(stream: BinaryIO, *, source: str) -> Iterator[Piece | BadLine]:
    """Yield the pieces of a plain, gzip or zstd stream. Memory: one piece.

    A compressed stream that breaks off gives its whole pieces, then a `BadLine`.
    Raises `MissingExtra` for zstd without the 'zst' extra.
    """
    plain = _decompressed(stream)
    number = 0
    try:
        if plain.peek(len(_BOM)).startswith(_BOM):
            plain.read(len(_BOM))
        cut = _values if _ARRAY.match(plain.peek(_CHUNK_BYTES)) else _lines
        for piece in cut(plain, source):
            number = piece.number if isinstance(piece, Piece) else piece.line
            yield piece
    except (EOFError, OSError) as error:
        yield BadLine(source, number + 1, f"reading stopped here: {error}")


def _decompressed(stream: BinaryIO) -> io.BufferedReader:
    buffered = _buffered(stream)
    magic = buffered.peek(len(_ZSTD_MAGIC))
    if magic.startswith(_GZIP_MAGIC):
        return _buffered(_Unpacked(gzip.GzipFile(fileobj=buffered).read1, zlib.error))
    if magic.startswith(_ZSTD_MAGIC):
        return _buffered(_zstd(buffered))
    return buffered


def _buffered(stream: BinaryIO | io.RawIOBase) -> io.BufferedReader:
    if isinstance(stream, io.BufferedReader):
        return stream
    return io.BufferedReader(cast("io.RawIOBase", stream), buffer_size=_CHUNK_BYTES)


def _zstd(stream: io.BufferedReader) -> io.RawIOBase:
    try:
        import zstandard  # noqa: PLC0415 - optional, and only for zstd files
    except ImportError as error:
        raise MissingExtra("reading zstd", extra="zst") from error
    reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
    return _Unpacked(reader.read, zstandard.ZstdError)


def _lines(stream: io.BufferedReader, source: str) -> Iterator[Piece | BadLine]:
    number = 0
    while line := stream.readline(MAX_PIECE_BYTES + 1):
        number += 1
        if len(line) > MAX_PIECE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(_CHUNK_BYTES)
            yield _too_long(source, number)
        elif not line.isspace():
            yield Piece(number, line)


def _values(stream: io.BufferedReader, source: str) -> Iterator[Piece | BadLine]:
    """Cut a JSON array, or objects one after the other, into objects by their braces."""
    cutter = _Cutter(source)
    while chunk := stream.read1(_CHUNK_BYTES):
        yield from cutter.feed(chunk)
    yield from cutter.finish()


class _Cutter:
    """Counts brackets outside of texts. The array around the objects is not counted."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._number = 0
        self._depth = 0
        self._in_text = False
        self._skip_next = False  # the byte after a backslash at the end of a chunk
        self._kept = bytearray()
        self._too_long = False

    def feed(self, chunk: bytes) -> Iterator[Piece | BadLine]:
        """Take the next bytes and return the objects that end in them."""
        start = 0
        at = self._end_of_text(chunk)
        while (at := _TO_BRACKET.match(chunk, at).end()) < len(chunk):  # type: ignore[union-attr]
            mark = chunk[at : at + 1]
            at += 1
            if mark == b'"':
                self._in_text = True
                at = self._end_of_text(chunk, at)
            elif self._depth or mark == b"{":
                self._depth += 1 if mark in b"{[" else -1
                if self._depth == 0:
                    self._keep(chunk[start:at])
                    start = at
                    yield self._piece()
            else:  # a bracket of the array around
                yield from self._stray(chunk[start : at - 1])
                start = at
        self._keep(chunk[start:])

    def finish(self) -> Iterator[Piece | BadLine]:
        """Return what is left: an object without its end, or stray text."""
        yield from self._stray(b"")

    def _end_of_text(self, chunk: bytes, at: int = 0) -> int:
        """Return where the text that is open, if one is, ends in this chunk."""
        if self._skip_next and chunk:
            at, self._skip_next = 1, False
        while self._in_text:
            found = _IN_TEXT.search(chunk, at)
            if found is None:
                return len(chunk)
            at = found.end()
            if found[0] == b'"':
                self._in_text = False
            else:
                self._skip_next = at == len(chunk)
                at += 1
        return at

    def _keep(self, data: bytes) -> None:
        if not self._kept:
            data = data.lstrip(b" \t\r\n,")
        self._too_long = self._too_long or len(self._kept) + len(data) > MAX_PIECE_BYTES
        if self._too_long:
            self._kept = bytearray(b"-")
        else:
            self._kept += data

    def _piece(self) -> Piece | BadLine:
        self._number += 1
        data, too_long = bytes(self._kept), self._too_long
        self._kept, self._too_long = bytearray(), False
        if too_long:
            return _too_long(self._source, self._number)
        return Piece(self._number, data)

    def _stray(self, data: bytes) -> Iterator[Piece | BadLine]:
        self._keep(data)
        if self._kept:
            yield self._piece()


def _too_long(source: str, number: int) -> BadLine:
    limit_mb = MAX_PIECE_BYTES // 2**20
    return BadLine(source, number, f"longer than {limit_mb} MB; the longest that is read")


class _Unpacked(io.RawIOBase):
    """A decompressor as a stream that gives what it has before it fails.

    Python's own buffering over a decompressor would lose the last block of a file that
    breaks off. `failure`, an error of the decompressor's own, becomes OSError.
    """

    def __init__(self, read_some: Callable[[int], bytes], failure: type[Exception]) -> None:
        self._read_some = read_some
        self._failure = failure

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill `buffer` as far as one read goes and return how many bytes that took."""
        try:
            data = self._read_some(len(buffer))
        except self._failure as error:
            raise OSError(str(error)) from error
        buffer[: len(data)] = data
        return len(data)
