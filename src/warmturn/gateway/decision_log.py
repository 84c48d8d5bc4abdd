"""The decision log on disk: written behind the requests, rotated by size, never in their way.

Looking on only puts references into a queue; `flush`, called from a thread every so often, makes the
lines. A full queue or a full disk loses lines, which is counted, and nothing else.
"""

import logging
import os
import secrets
from collections import deque
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from warmturn.errors import InvalidInput
from warmturn.fleet.chain import IndexHashes
from warmturn.gateway.turns import Outcome, Turn
from warmturn.router import DecisionLogWriter, Placement, TurnEnd

__all__ = ["DecisionLogFile"]

logger = logging.getLogger(__name__)

MAX_QUEUED = 20_000
"""Decisions and ends between two flushes: half a second at 20,000 requests a second."""


class DecisionLogFile:
    """A `TurnObserver` that writes `FILE`, and keeps `FILE.1` (newest) to `FILE.num_files`."""

    def __init__(self, file: Path, *, max_bytes: int, num_files: int, unix_offset_s: float) -> None:
        """`unix_offset_s`: Unix time less the gateway's clock.

        A file of an earlier run is kept as `FILE.1`. Raises `InvalidInput` where it cannot write.
        """
        self._file, self._max_bytes, self._num_files = file, max_bytes, num_files
        self._unix_offset_s = unix_offset_s
        self._writer = DecisionLogWriter(key=secrets.token_bytes(32))
        self._queue: deque[tuple[Placement, IndexHashes | None] | TurnEnd] = deque()
        self._stream: BinaryIO | None = None
        self._size = 0
        self._flushing = Lock()
        self.num_lost = 0
        """Entries that were not written: the queue or the disk was full."""
        try:
            self._begin()
        except OSError as error:
            raise InvalidInput(
                f"decision_log.file {file}: {error.strerror}; name a file that can be written"
            ) from error

    def placed(self, turn: Turn, now: float) -> None:
        """Queue the decision."""
        del now
        if turn.placement is not None:
            self._put((turn.placement, turn.chain))

    def first_byte(self, turn: Turn, now: float) -> None:
        """Nothing is written before the end."""

    def failed(self, turn: Turn, why: str, now: float) -> None:
        """The next placement tells."""

    def ended(self, turn: Turn, outcome: Outcome, now: float) -> None:
        """Queue what the answer told."""
        del now
        if turn.placement is None:
            return
        usage, sent_s, first_s = outcome.usage, turn.sent_s, turn.first_byte_s
        self._put(
            TurnEnd(
                turn.number,
                prompt_tokens=None if usage is None else usage.prompt_tokens,
                cached_tokens=None if usage is None else usage.cached_tokens,
                completion_tokens=None if usage is None else usage.completion_tokens,
                ttft_s=None if sent_s is None or first_s is None else first_s - sent_s,
            )
        )

    def flush(self) -> None:
        """Write what is queued. May be called from any thread; never raises for want of space."""
        with self._flushing:
            self._flush()

    def close(self) -> None:
        """Write the rest and close the file."""
        self.flush()
        self._close_stream()

    def _put(self, entry: tuple[Placement, IndexHashes | None] | TurnEnd) -> None:
        if len(self._queue) >= MAX_QUEUED:
            self.num_lost += 1
        else:
            self._queue.append(entry)

    def _flush(self) -> None:
        lines = bytearray()
        for _ in range(len(self._queue)):
            if not self._is_open():  # first: lines refer to what their own file tells
                self._lose_queue()
                return
            entry = self._queue.popleft()
            if isinstance(entry, TurnEnd):
                lines += self._writer.end(entry)
            else:
                placement, chain = entry
                record = placement.record(at_s=placement.placed_s + self._unix_offset_s)
                lines += self._writer.decision(record, chain)
            if self._size + len(lines) >= self._max_bytes:
                self._write(lines)
                lines.clear()
                self._close_stream()
        self._write(lines)

    def _is_open(self) -> bool:
        """Begin a file where none is open; say whether one is."""
        if self._stream is None:
            try:
                self._begin()
            except OSError as error:
                self._warn(error)
        return self._stream is not None

    def _write(self, lines: bytearray) -> None:
        if not lines or self._stream is None:
            return
        try:
            num_written = self._stream.write(lines)
            if num_written < len(lines):
                raise OSError(ENOSPC, os.strerror(ENOSPC))  # noqa: TRY301 - as the next one would
            self._size += len(lines)
        except OSError as error:
            self._warn(error)
            self.num_lost += lines.count(b"\n")
            with suppress(OSError):
                self._stream.truncate(self._size)  # half a line could not be read
            self._close_stream()

    def _lose_queue(self) -> None:
        self.num_lost += len(self._queue)
        self._queue.clear()

    def _warn(self, error: OSError) -> None:
        if self.num_lost == 0:
            logger.warning("the decision log cannot be written: %s", error.strerror)

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _begin(self) -> None:
        """Move older files on and open a new one, readable by its owner only."""
        if self._file.exists():
            for number in range(self._num_files - 1, 0, -1):
                older = self._numbered(number)
                if older.exists():
                    older.replace(self._numbered(number + 1))
            self._file.replace(self._numbered(1))
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._stream = os.fdopen(descriptor, "wb", buffering=0)
        self._size = self._stream.write(self._writer.begin())

    def _numbered(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{number}")
