"""The disk slab's index: a file of small records, appended after what they tell of.

    op   slot  number  block hash  checksum of the data  check of this record
    4 B  4 B   8 B     32 B        8 B                   8 B                    little-endian

A record counts once its own check is right, so a write cut short is no record. Opening reads all
of them, keeps what is still there, and writes that anew to a second file that takes the first
one's place: torn ends are gone, and the file stays as small as the slab.
"""

import os
import struct
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import xxhash

from warmturn.types import BlockHash

__all__ = ["Journal", "Placed"]

_RECORD = struct.Struct("<4sIQ32sQ")
_CHECK = struct.Struct("<Q")
_SIZE = _RECORD.size + _CHECK.size
_PUT, _REMOVE = b"PUT ", b"GONE"
_COMPACT_FROM = 4
"""Records per slot at which the file is written anew."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A block that is on disk."""

    slot: int
    key: BlockHash
    checksum: int


class Journal:
    """What lies in which slot, in memory and on disk alike. Not thread-safe.

    Raises `OSError` where the file system does; what is in memory then stays as it was.
    """

    def __init__(self, path: Path, num_slots: int) -> None:
        """Read the file if there is one; records of slots from `num_slots` on are dropped."""
        self._path = path
        self._num_slots = num_slots
        self._slots: OrderedDict[int, Placed] = OrderedDict()  # oldest first
        self._number = 0
        self._num_records = 0
        if path.exists():
            self._replay(path.read_bytes())
        self._file = -1
        self._rewrite()

    def placed(self) -> list[Placed]:
        """Return what is there, oldest first."""
        return list(self._slots.values())

    def at(self, slot: int) -> Placed | None:
        """Return what lies in a slot."""
        return self._slots.get(slot)

    def put(self, placed: Placed) -> None:
        """Note a block whose data is written."""
        self._append(_PUT, placed)
        self._slots.pop(placed.slot, None)
        self._slots[placed.slot] = placed

    def remove(self, slot: int) -> None:
        """Note that what lay in a slot is no more; do this before writing over it."""
        placed = self._slots.get(slot)
        if placed is not None:
            self._append(_REMOVE, placed)
            del self._slots[slot]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _append(self, op: bytes, placed: Placed) -> None:
        if self._num_records >= _COMPACT_FROM * self._num_slots + 1024:
            self._rewrite()
        self._number += 1
        record = _encode(op, self._number, placed)
        written = os.write(self._file, record)
        if written != len(record):
            os.ftruncate(self._file, self._num_records * _SIZE)
            raise OSError(f"{self._path}: {written} of {len(record)} bytes written")
        self._num_records += 1

    def _replay(self, data: bytes) -> None:
        for start in range(0, len(data) - _SIZE + 1, _SIZE):
            record = data[start : start + _SIZE]
            (check,) = _CHECK.unpack_from(record, _RECORD.size)
            if check != xxhash.xxh3_64_intdigest(record[: _RECORD.size]):
                continue  # torn; the ones after it were appended by the same process
            op, slot, number, key, checksum = _RECORD.unpack_from(record)
            self._number = max(self._number, number)
            self._slots.pop(slot, None)
            if op == _PUT and slot < self._num_slots:
                self._slots[slot] = Placed(slot, BlockHash(key), checksum)

    def _rewrite(self) -> None:
        """Write what is there to a second file, then put it in the first one's place."""
        fresh = self._path.with_suffix(".new")
        records = b"".join(_encode(_PUT, self._number, placed) for placed in self._slots.values())
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        file = os.open(fresh, flags, 0o600)
        try:
            view = memoryview(records)
            while view:
                view = view[os.write(file, view) :]
            os.fsync(file)
            fresh.replace(self._path)
        except OSError:
            os.close(file)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file = file
        self._num_records = len(self._slots)


def _encode(op: bytes, number: int, placed: Placed) -> bytes:
    head = _RECORD.pack(op, placed.slot, number, placed.key, placed.checksum)
    return head + _CHECK.pack(xxhash.xxh3_64_intdigest(head))
