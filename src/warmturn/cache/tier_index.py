"""Which content lies in which slot of one tier below the device."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warmturn.errors import BrokenInvariant
from warmturn.types import BlockHash

__all__ = ["TierIndex"]


@dataclass(slots=True)
class _Entry:
    slot: int
    is_ready: bool = False
    is_condemned: bool = False
    """Removed while pinned: the slot is given back with the last pin."""
    num_pins: int = 0


class TierIndex:
    """Slots of one tier, by content, evicted least recently used first.

    The pool's order: of one chain the tail goes first, as long as chains are touched whole
    (`touch`). Unlike the pool it keeps no promise that a block's parent is there too: a block
    that failed its checksum is removed alone, and what came after it ages.

    Content is coming (a slot is reserved, its bytes are not there), ready, or condemned.

    Invariants, checked by `check()`:

    1. Every slot is either free or some content's, never both, and never two contents'.
    2. The order holds exactly what is ready; content that is coming or condemned is not in it.
    3. The number of evictable blocks is that of ready ones without a pin.
    4. Condemned content is pinned.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._entries: dict[BlockHash, _Entry] = {}
        self._order: OrderedDict[BlockHash, None] = OrderedDict()  # first is evicted first
        self._free = list(range(num_slots - 1, -1, -1))
        self._num_pinned = 0  # of those ready
        self._evicted: list[BlockHash] = []

    def __contains__(self, key: BlockHash) -> bool:
        """Tell whether a slot is this content's, in whatever state."""
        return key in self._entries

    @property
    def num_ready(self) -> int:
        """Blocks that can be read."""
        return len(self._order)

    @property
    def num_available(self) -> int:
        """Slots that `reserve` could give now."""
        return len(self._free) + len(self._order) - self._num_pinned

    def is_ready(self, key: BlockHash) -> bool:
        """Tell whether the content can be read."""
        return key in self._order

    def is_coming(self, key: BlockHash) -> bool:
        """Tell whether the content has a slot and will be ready once its bytes are there."""
        entry = self._entries.get(key)
        return entry is not None and not entry.is_ready and not entry.is_condemned

    def is_pinned(self, key: BlockHash) -> bool:
        """Tell whether somebody reads the content now."""
        return key in self._entries and self._entries[key].num_pins > 0

    def slot_of(self, key: BlockHash) -> int:
        """Return the slot of content in whatever state."""
        return self._entries[key].slot

    # --- writing ---

    def reserve(self, key: BlockHash) -> int | None:
        """Give new content a slot, evicting the least recently used; None for "not now".

        It cannot be read before `commit`. Content must not have a slot already.
        """
        if key in self._entries:
            raise BrokenInvariant(f"block {key.hex()[:12]} is stored twice in one tier")
        if self.num_available == 0:
            return None
        slot = self._free.pop() if self._free else self._evict()
        self._entries[key] = _Entry(slot)
        return slot

    def commit(self, key: BlockHash) -> None:
        """Make reserved content readable, most recently used."""
        self._entries[key].is_ready = True
        self._order[key] = None

    def restore(self, found: Iterable[tuple[BlockHash, int]]) -> None:
        """Take over content and slots found at start; later ones are more recently used."""
        for key, slot in found:
            self._entries[key] = _Entry(slot)
            self.commit(key)
        taken = {entry.slot for entry in self._entries.values()}
        self._free = [slot for slot in reversed(range(self.num_slots)) if slot not in taken]

    def remove(self, key: BlockHash) -> None:
        """Forget content, such as a write that failed or a block that proved wrong.

        Does nothing for content that is not there. While it is pinned the slot stays taken.
        """
        entry = self._entries.get(key)
        if entry is None or entry.is_condemned:
            return
        self._order.pop(key, None)
        if entry.num_pins:
            self._num_pinned -= entry.is_ready
            entry.is_ready, entry.is_condemned = False, True
        else:
            self._free.append(self._entries.pop(key).slot)

    # --- reading ---

    def pin(self, key: BlockHash) -> int:
        """Keep ready content from eviction until `unpin`; return its slot."""
        entry = self._entries[key]
        if not entry.is_ready:
            raise BrokenInvariant(f"block {key.hex()[:12]} is read before it is ready")
        self._num_pinned += entry.num_pins == 0
        entry.num_pins += 1
        return entry.slot

    def unpin(self, key: BlockHash) -> None:
        """End one `pin`. Recency stays as it was; condemned content goes with the last pin."""
        entry = self._entries[key]
        entry.num_pins -= 1
        if entry.num_pins:
            return
        if entry.is_condemned:
            self._free.append(self._entries.pop(key).slot)
        else:
            self._num_pinned -= 1

    def touch(self, chain: Sequence[BlockHash]) -> None:
        """Make what is there of a chain most recently used, its head more than its tail."""
        for key in reversed(chain):
            if key in self._order:
                self._order.move_to_end(key)

    def clear(self) -> None:
        """Forget all content that is ready; what is coming still comes."""
        for key in [*self._order]:
            self.remove(key)

    def drain_evicted(self) -> list[BlockHash]:
        """Return what was evicted since the last call, in order."""
        evicted, self._evicted = self._evicted, []
        return evicted

    def in_order(self) -> Iterable[BlockHash]:
        """Return what is ready, first evicted first. For tests and docs."""
        return tuple(self._order)

    def _evict(self) -> int:
        """Take the slot of the least recently used block without a pin; there is one.

        Pinned blocks were used a moment ago, so they are far from the front.
        """
        key = next(key for key in self._order if not self._entries[key].num_pins)
        del self._order[key]
        self._evicted.append(key)
        return self._entries.pop(key).slot

    def check(self) -> None:
        """Raise `BrokenInvariant` naming the first numbered invariant that does not hold."""
        entries = self._entries
        taken = [entry.slot for entry in entries.values()]
        _hold(1, sorted([*taken, *self._free]) == list(range(self.num_slots)), "slots")
        ready = {key for key, entry in entries.items() if entry.is_ready}
        _hold(2, set(self._order) == ready, "the order is not what is ready")
        pinned = sum(entries[key].num_pins > 0 for key in ready)
        _hold(3, pinned == self._num_pinned, "count of pinned blocks")
        condemned = [entry for entry in entries.values() if entry.is_condemned]
        _hold(4, all(entry.num_pins > 0 for entry in condemned), "condemned without a pin")


def _hold(number: int, holds: bool, what: str) -> None:
    if not holds:
        raise BrokenInvariant(f"tier index invariant {number} does not hold: {what}")
