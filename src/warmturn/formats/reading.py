"""Logs of any format and size to requests, one at a time."""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from warmturn.errors import InvalidInput
from warmturn.formats.detect import detect_format, format_named, parsed
from warmturn.formats.format import Entry, Format, Item
from warmturn.formats.pieces import Piece, pieces
from warmturn.formats.record import BadLine, LoggedRequest, Skipped, Wanted

__all__ = ["is_wanted", "read_log", "read_share", "read_stream"]

MAX_HEAD_PIECES = 2000
MAX_HEAD_BYTES = 8 * 2**20
"""How much of a log is searched for a line that shows its format: a server's log begins
with some hundred lines about its start."""


def read_log(
    paths: str | Path | Iterable[str | Path],
    *,
    format: str | None = None,  # noqa: A002 - the name users know from --format
    strict: bool = False,
) -> Iterator[LoggedRequest | BadLine]:
    """Yield the requests of one log file or several in order; `-` is standard input.

    Plain, gzip or zstd; JSON lines or an array. Each file's format is detected unless
    `format` names it. What cannot be read comes out as `BadLine`, or with `strict` raises
    `InvalidInput` at the first. Memory does not depend on a file's size, but for
    session files, of which one session is held.
    Raises `InvalidInput` for a missing file and an unknown format, `MissingExtra` for zstd.
    """
    chosen = None if format is None else format_named(format)
    paths = [paths] if isinstance(paths, str | Path) else paths
    return chain.from_iterable(_read_file(path, chosen, strict=strict) for path in paths)


def read_stream(
    stream: BinaryIO,
    *,
    source: str,
    format: str | None = None,  # noqa: A002 - the name users know from --format
    strict: bool = False,
) -> Iterator[LoggedRequest | BadLine]:
    """Yield the requests of one open log, as `read_log` does; `source` names it."""
    chosen = None if format is None else format_named(format)
    return _read(stream, source, chosen, strict=strict)


def read_share(
    stream: BinaryIO,
    wanted: Wanted,
    *,
    source: str,
    format: str | None = None,  # noqa: A002 - the name users know from --format
) -> Iterator[Item]:
    """Yield of one open log what `wanted` takes, and `Skipped` in the place of each other record.

    Where the format lets it, a record that is not wanted is not read but for its conversation's
    id. What cannot be read belongs to no conversation: `wanted` is asked for None.
    """
    chosen = None if format is None else format_named(format)
    try:
        yield from _requests(pieces(stream, source=source), source, chosen, wanted)
    except InvalidInput as error:
        raise InvalidInput(f"{source}: {error}") from error


def _read_file(
    path: str | Path, chosen: Format | None, *, strict: bool
) -> Iterator[LoggedRequest | BadLine]:
    if str(path) == "-":
        yield from _read(sys.stdin.buffer, "-", chosen, strict=strict)
        return
    with _opened(path) as stream:
        yield from _read(stream, str(path), chosen, strict=strict)


def _opened(path: str | Path) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"cannot read the log {path}: {reason}; check the path") from error


def _read(
    stream: BinaryIO, source: str, chosen: Format | None, *, strict: bool
) -> Iterator[LoggedRequest | BadLine]:
    try:
        for item in _requests(pieces(stream, source=source), source, chosen, None):
            assert not isinstance(item, Skipped)
            if strict:
                _refuse_bad(item)
            yield item
    except InvalidInput as error:
        raise InvalidInput(f"{source}: {error}") from error


def _refuse_bad(item: LoggedRequest | BadLine) -> None:
    if isinstance(item, BadLine):
        raise InvalidInput(f"line {item.line}: {item.reason}")


def _requests(
    cut: Iterator[Piece | BadLine], source: str, chosen: Format | None, wanted: Wanted | None
) -> Iterator[Item]:
    head: list[Piece | BadLine] = []
    if chosen is None:
        lines = _head(cut, head)
        first = next(lines, None)
        if first is not None:
            chosen = format_named(detect_format(chain((first,), lines)))
    if chosen is None:
        bad = [piece for piece in head if isinstance(piece, BadLine)]
        yield from bad or [BadLine(source, 1, "the file is empty")]
        return
    entry = _text_entry if chosen.is_text else _json_entry
    all_pieces = chain(head, cut)
    if wanted is None:
        yield from chosen.read(entry(piece, source) for piece in all_pieces)
    elif chosen.conversation_of is None:
        items = chosen.read(entry(piece, source) for piece in all_pieces)
        yield from (item if is_wanted(item, wanted) else Skipped() for item in items)
    else:
        name_of = chosen.conversation_of
        yield from chosen.read(
            entry(piece, source) if _is_piece_wanted(piece, name_of, wanted) else Skipped()
            for piece in all_pieces
        )


def is_wanted(item: Item, wanted: Wanted) -> bool:
    """Ask for an item that was read whole."""
    if isinstance(item, LoggedRequest):
        return wanted(item.conversation_id, 1 + len(item.messages or ()))
    return wanted(None, 1)


def _is_piece_wanted(
    piece: Piece | BadLine, name_of: Callable[[bytes], str | None], wanted: Wanted
) -> bool:
    if isinstance(piece, Piece):
        return wanted(name_of(piece.data), len(piece.data))
    return wanted(None, 1)


def _head(cut: Iterator[Piece | BadLine], head: list[Piece | BadLine]) -> Iterator[bytes]:
    """Yield the first pieces, and keep them in `head` to be read again."""
    num_bytes = 0
    for piece in cut:
        head.append(piece)
        if isinstance(piece, Piece):
            yield piece.data
            num_bytes += len(piece.data)
        if len(head) >= MAX_HEAD_PIECES or num_bytes > MAX_HEAD_BYTES:
            return


def _json_entry(piece: Piece | BadLine, source: str) -> Entry | BadLine:
    if isinstance(piece, BadLine):
        return piece
    try:
        return Entry(source, piece.number, parsed(piece.data))
    except InvalidInput as error:
        return BadLine(source, piece.number, str(error))


def _text_entry(piece: Piece | BadLine, source: str) -> Entry | BadLine:
    if isinstance(piece, BadLine):
        return piece
    return Entry(source, piece.number, piece.data.decode(errors="replace").rstrip("\r\n"))
