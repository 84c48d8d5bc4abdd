"""A shared tier in a folder that several hosts mount: one file per block, put in place whole.

    <root>/<first 16 hex digits of the fingerprint>/<2 hex digits>/<block hash in hex>.kv

A file is written under another name first and then renamed, so nobody ever reads half of one. It
begins with a header that says whose block it is (`cache.record`). Old files go by age and, beyond
`max_bytes`, oldest use first; every engine that writes cleans up now and then.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from warmturn.cache.fingerprint import Digest
from warmturn.cache.record import (
    HEADER_BYTES,
    Bytes,
    record_checksum,
    record_header,
    record_problem,
)
from warmturn.cache.transfers import Outcome
from warmturn.errors import InvalidInput
from warmturn.types import BlockHash

__all__ = ["FolderStore"]

log = logging.getLogger(__name__)

CLEAN_EVERY = 256
"""Writes between two looks at the whole folder."""


class FolderStore:
    """Blocks of one fingerprint under `root`. Threads may share it."""

    def __init__(
        self,
        root: Path,
        owner: Digest,
        *,
        max_bytes: int | None = None,
        ttl_s: float | None = None,
        verifies: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`ttl_s`: files not used for so long are deleted. `now` is Unix time, as files have it.

        Raises `InvalidInput` for a folder that cannot be written.
        """
        self._owner = owner
        self._folder = root / owner.hex()[:16]
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._verifies = verifies
        self._now = now
        self._num_written = 0
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = self._folder / f".probe-{secrets.token_hex(8)}"
            probe.touch(mode=0o600)
            probe.unlink()
        except OSError as error:
            raise InvalidInput(
                f"shared tier {root} cannot be used: {error.strerror or error}; "
                "give a folder that can be written"
            ) from error

    def contains(self, keys: Sequence[BlockHash]) -> list[bool]:
        """Tell for each block whether there is a file of it. Raises `OSError`."""
        return [self._path(key).exists() for key in keys]

    def write(
        self, keys: Sequence[BlockHash], blocks: Sequence[Bytes], checksums: Sequence[int]
    ) -> None:
        """Put blocks in place; those that are there already are left. Raises `OSError`."""
        for key, block, checksum in zip(keys, blocks, checksums, strict=True):
            self._write(key, block, checksum)
        if self._num_written >= CLEAN_EVERY:
            self._num_written = 0
            self.clean()

    def _write(self, key: BlockHash, block: Bytes, checksum: int) -> None:
        path = self._path(key)
        if path.exists():
            os.utime(path)
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        header = record_header(key, self._owner, payload_bytes=len(block), checksum=checksum)
        try:
            with open(fresh, "xb", buffering=0, opener=_private) as file:
                _write_all(file.fileno(), header, block)
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        self._num_written += 1

    def read(
        self, keys: Sequence[BlockHash], targets: Sequence[Bytes]
    ) -> list[tuple[Outcome, int]]:
        """Read blocks into `targets`; a file that is not that block is deleted. Raises `OSError`."""
        return [self._read(key, target) for key, target in zip(keys, targets, strict=True)]

    def _read(self, key: BlockHash, target: Bytes) -> tuple[Outcome, int]:
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                header = file.read(HEADER_BYTES) or b""
                num_read = _read_all(file.fileno(), target)
                is_longer = bool(file.read(1))
        except FileNotFoundError:
            return Outcome.MISSING, 0
        problem = record_problem(header, target[:num_read], key, self._owner, verify=self._verifies)
        if problem is None and not is_longer:
            with suppress(OSError):
                os.utime(path)  # recently used
            return Outcome.OK, record_checksum(header)
        log.warning("shared tier: %s: %s", path, problem or "longer than its block")
        with suppress(OSError):
            path.unlink()
        return Outcome.WRONG, 0

    def clean(self) -> int:
        """Delete what is too old or too much, unused longest first; return how many files."""
        found = []
        for path in self._folder.glob("*/*"):
            with suppress(OSError):  # another engine deleted it
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        found.sort(key=lambda each: each[0])
        total = sum(size for _, size, _ in found)
        num_deleted = 0
        for used_s, size, path in found:
            is_old = self._ttl_s is not None and used_s < self._now() - self._ttl_s
            if not is_old and (self._max_bytes is None or total <= self._max_bytes):
                break
            path.unlink(missing_ok=True)
            total -= size
            num_deleted += 1
        return num_deleted

    def close(self) -> None:
        """There is nothing to release."""

    def _path(self, key: BlockHash) -> Path:
        name = key.hex()
        return self._folder / name[:2] / f"{name}.kv"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _write_all(file: int, header: bytes, block: Bytes) -> None:
    views = [memoryview(header), block.data]
    while views:
        count = os.writev(file, views)
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if views:
            views[0] = views[0][count:]


def _read_all(file: int, target: Bytes) -> int:
    view, done = target.data, 0
    while done < len(view):
        count = os.readv(file, [view[done:]])
        if count == 0:
            break
        done += count
    return done
