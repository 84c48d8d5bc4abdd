"""The host tier: one run of memory, cut into slots of one block each."""

import mmap
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from warmturn.cache.fingerprint import Digest
from warmturn.cache.record import Bytes, block_checksum
from warmturn.errors import InvalidInput
from warmturn.types import BlockHash

__all__ = ["ALIGNMENT", "HostArena", "stride_of"]

ALIGNMENT = 4096
"""Slots begin and end on memory pages, so that disks can read straight into them (O_DIRECT)."""

FRESH_S = 1.0
"""A block that was compared with its checksum so short a while ago is not compared again: what
comes from a store is compared once on its way up."""


def stride_of(block_bytes: int) -> int:
    """Return the bytes from one slot to the next."""
    return -(-block_bytes // ALIGNMENT) * ALIGNMENT


class HostArena:
    """`num_slots` slots of `block_bytes`, allocated and touched at once; it never grows.

    Every slot has the checksum of what was put into it; `verifies` off skips comparing it, which
    is only for measuring what it costs and for seeing tests fail.
    """

    def __init__(
        self,
        num_slots: int,
        block_bytes: int,
        owner: Digest,
        *,
        verifies: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `InvalidInput` where there is not enough memory."""
        self.num_slots = num_slots
        self.block_bytes = block_bytes
        self.owner = owner
        self.verifies = verifies
        stride = stride_of(block_bytes)
        num_bytes = num_slots * stride
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            memory = mmap.mmap(-1, num_bytes, flags=flags)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                memory.madvise(mmap.MADV_HUGEPAGE)
            self.memory = np.frombuffer(memory, np.uint8).reshape(num_slots, stride)
            self.memory.fill(0)  # memory that is missing is missed now, not in a request
        except (OSError, OverflowError, ValueError, MemoryError) as error:
            raise InvalidInput(
                f"a host tier of {num_slots} blocks needs {num_bytes / 1e9:,.1f} GB of memory, "
                "more than can be had; lower --host-tier"
            ) from error
        self.checksums: npt.NDArray[np.uint64] = np.zeros(num_slots, np.uint64)
        self._clock = clock
        self._fresh_until_s = np.full(num_slots, -np.inf)

    def block(self, slot: int) -> Bytes:
        """Return the bytes of one block, `[block_bytes]`; a view."""
        return self.memory[slot, : self.block_bytes]

    def padded(self, slot: int) -> memoryview:
        """Return a whole slot as a buffer for a disk, page-aligned in place and length."""
        return memoryview(self.memory[slot])

    def seal(self, slot: int, key: BlockHash) -> int:
        """Note the checksum of what lies in the slot as block `key`; return it."""
        checksum = block_checksum(self.block(slot), key, self.owner)
        self.checksums[slot] = checksum
        self._fresh_until_s[slot] = -np.inf
        return checksum

    def arrived(self, slot: int, checksum: int) -> None:
        """Note what a store read into the slot and has just compared with its checksum."""
        self.checksums[slot] = checksum
        self._fresh_until_s[slot] = self._clock() + FRESH_S

    def is_whole(self, slot: int, key: BlockHash) -> bool:
        """Tell whether the slot holds what was put in as `key`."""
        if not self.verifies or self._clock() < self._fresh_until_s[slot]:
            return True
        return block_checksum(self.block(slot), key, self.owner) == int(self.checksums[slot])
