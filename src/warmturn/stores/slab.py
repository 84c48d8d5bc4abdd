"""The disk tier: one preallocated file cut into slots, and a journal of what lies in them.

A folder holds `blocks.slab` (a header page, then the slots), `index.journal` and `lock`. Data is
written first, its record after it; a slot that is used again is taken out of the journal before it
is written over. So a process may die at any instant: what was recorded is whole, what was not is
not there. Losing power may lose records or data that the system had not written yet; a slot whose
bytes then do not match its checksum is a miss.
"""

import fcntl
import json
import logging
import mmap
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from warmturn.cache.fingerprint import Fingerprint
from warmturn.cache.record import block_checksum
from warmturn.cache.transfers import Outcome
from warmturn.errors import InvalidInput
from warmturn.stores.arena import ALIGNMENT, stride_of
from warmturn.stores.journal import Journal, Placed
from warmturn.types import BlockHash

__all__ = ["DiskSlab"]

log = logging.getLogger(__name__)

FORM = "warmturn slab 1"


class DiskSlab:
    """Blocks on one local disk, by slot. Which block goes to which slot is the caller's choice.

    One process at a time: the folder is locked. Reads and writes of different slots may run in
    several threads at once. Buffers are whole slots of a `HostArena`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        num_bytes: int,
        block_bytes: int,
        fingerprint: Fingerprint,
        direct: bool = True,
        verifies: bool = True,
    ) -> None:
        """Open or create the slab in `folder`, at most `num_bytes` large.

        `direct` bypasses the system's cache where the file system can. Raises `InvalidInput` for a
        folder that is locked, read-only or another model's, a size below one block, a full disk.
        """
        self.folder = folder
        self.block_bytes = block_bytes
        self.owner = fingerprint.digest
        self.verifies = verifies
        self._stride = stride_of(block_bytes)
        self.num_slots = (num_bytes - ALIGNMENT) // self._stride
        if self.num_slots < 1:
            raise InvalidInput(
                f"a disk tier of {num_bytes:,} bytes was asked for; one block takes "
                f"{self._stride:,} and the header {ALIGNMENT:,}: raise the size in --disk-tier"
            )
        self._guard = threading.Lock()
        self._lock_file = self._lock()
        try:
            self._file = self._open(fingerprint, direct=direct)
            self._journal = Journal(folder / "index.journal", self.num_slots)
        except OSError as error:
            os.close(self._lock_file)
            raise self._cannot_use(error) from error
        except InvalidInput:
            os.close(self._lock_file)
            raise

    def found(self) -> list[tuple[BlockHash, int]]:
        """Return every block that is there with its slot, oldest first."""
        return [(placed.key, placed.slot) for placed in self._journal.placed()]

    def write(self, slot: int, key: BlockHash, buffer: memoryview, checksum: int) -> None:
        """Write a block over whatever lies in `slot`. Raises `OSError`; the slot is empty then."""
        with self._guard:
            self._journal.remove(slot)
        self._pwrite(buffer, ALIGNMENT + slot * self._stride)
        with self._guard:
            self._journal.put(Placed(slot, key, checksum))

    def read(self, slot: int, key: BlockHash, buffer: memoryview) -> tuple[Outcome, int]:
        """Read the block `key` from `slot` into `buffer`; return what came of it and its checksum.

        A block that is not what was written is forgotten. Raises `OSError`.
        """
        placed = self._journal.at(slot)
        if placed is None or placed.key != key:
            return Outcome.MISSING, 0
        num_read = self._pread(buffer, ALIGNMENT + slot * self._stride)
        is_whole = num_read >= self.block_bytes and (
            not self.verifies
            or block_checksum(buffer[: self.block_bytes], key, self.owner) == placed.checksum
        )
        if is_whole:
            return Outcome.OK, placed.checksum
        log.warning("disk tier: slot %d does not hold block %s as written", slot, key.hex()[:12])
        with self._guard, suppress(OSError):
            if self._journal.at(slot) == placed:
                self._journal.remove(slot)
        return Outcome.WRONG, 0

    def close(self) -> None:
        """Release the folder."""
        self._journal.close()
        os.close(self._file)
        os.close(self._lock_file)

    # --- opening ---

    def _lock(self) -> int:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._cannot_use(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            raise InvalidInput(
                f"disk tier {self.folder} is used by another process; give each engine a folder "
                "of its own, or let them share one as --shared-tier file://PATH"
            ) from error
        return file

    def _open(self, fingerprint: Fingerprint, *, direct: bool) -> int:
        path = self.folder / "blocks.slab"
        header = {
            "form": FORM,
            "fingerprint": self.owner.hex(),
            "of": fingerprint.describe(),
            "block_bytes": self.block_bytes,
        }
        if path.exists() and path.stat().st_size > 0:
            self._check_header(path, header)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, json.dumps(header).encode().ljust(ALIGNMENT), 0)
            size = ALIGNMENT + self.num_slots * self._stride
            os.ftruncate(file, size)
            os.posix_fallocate(file, 0, size)
        except OSError:
            os.close(file)
            raise
        return _reopened_direct(path, file) if direct else file

    def _check_header(self, path: Path, wanted: dict[str, Any]) -> None:
        try:
            with path.open("rb") as file:
                found = json.loads(file.read(ALIGNMENT))
            is_slab = isinstance(found, dict) and str(found.get("form", "")).startswith("warmturn")
        except ValueError:
            is_slab = False
        if not is_slab:
            raise InvalidInput(f"{path} is no slab of warmturn; give the disk tier an empty folder")
        if found != wanted:
            raise InvalidInput(
                f"disk tier {self.folder} belongs to {found.get('of')} ({found.get('form')}), not "
                f"to {wanted['of']} ({FORM}) with these weights and settings; give another folder, "
                "or empty this one"
            )

    def _cannot_use(self, error: OSError) -> InvalidInput:
        return InvalidInput(
            f"disk tier {self.folder} cannot be used: {error.strerror or error}; "
            "give a folder that can be written, on a disk with room for it"
        )

    # --- bytes ---

    def _pwrite(self, buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            done += os.pwrite(self._file, buffer[done:], offset + done)

    def _pread(self, buffer: memoryview, offset: int) -> int:
        done = 0
        while done < len(buffer):
            count = os.preadv(self._file, [buffer[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done


def _reopened_direct(path: Path, file: int) -> int:
    """Return a handle that bypasses the system's cache; `file` where that cannot be done."""
    if not hasattr(os, "O_DIRECT"):
        return file
    try:
        direct = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return file
    page = mmap.mmap(-1, ALIGNMENT)
    try:
        os.preadv(direct, [page], 0)
    except OSError:
        os.close(direct)
        return file
    finally:
        page.close()
    os.close(file)
    return direct
