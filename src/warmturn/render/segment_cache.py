"""Token ids of text segments met before, bounded in bytes."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from warmturn.types import TokenIds

__all__ = ["SegmentCache"]

_ENTRY_OVERHEAD_BYTES = 240
"""An array object, a dictionary slot and the key's header, measured on CPython 3.11."""


@dataclass(slots=True)
class _Generation:
    ids_of: dict[str, TokenIds] = field(default_factory=dict)
    num_bytes: int = 0


class SegmentCache:
    """Keeps the recently used segments in two generations of half the capacity each.

    A hit in the old generation moves the segment to the young one; when the young one is full
    it becomes the old one, and what the old one held and nobody asked for is gone. This forgets
    the least recently used like a list in order of use, without reordering at every hit.

    Safe to use from several threads without a lock: each step is one operation on a
    dictionary. Two threads that add at once may lose one addition to `num_bytes`, so the bound
    is soft by that much; each generation counts anew, so the error does not build up.
    """

    def __init__(self, *, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._young = _Generation()
        self._old = _Generation()

    @property
    def num_bytes(self) -> int:
        """Bytes held, keys and overhead included."""
        return self._young.num_bytes + self._old.num_bytes

    def __len__(self) -> int:
        return len(self._young.ids_of.keys() | self._old.ids_of.keys())

    def get(self, segment: str) -> TokenIds | None:
        """Return the ids of `segment`, read-only, or None."""
        ids = self._young.ids_of.get(segment)
        if ids is None:
            ids = self._old.ids_of.get(segment)
            if ids is not None:
                self.put(segment, ids)
        return ids

    def get_all(self, segments: Sequence[str]) -> list[TokenIds | None]:
        """Return `get` of each: mostly they were all met a moment ago, as parts of a prompt."""
        found = list(map(self._young.ids_of.get, segments))
        for index, ids in enumerate(found):
            if ids is None:
                found[index] = self.get(segments[index])
        return found

    def put(self, segment: str, ids: TokenIds) -> None:
        """Remember `ids`, which become read-only. A segment over half the capacity is not kept."""
        ids.flags.writeable = False
        num_bytes = sys.getsizeof(segment) + ids.nbytes + _ENTRY_OVERHEAD_BYTES
        if num_bytes > self.capacity_bytes // 2:
            return
        young = self._young
        if young.num_bytes + num_bytes > self.capacity_bytes // 2:
            self._old, self._young = young, _Generation()
            young = self._young
        if young.ids_of.setdefault(segment, ids) is ids:
            young.num_bytes += num_bytes
