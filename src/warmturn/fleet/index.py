"""The fleet's belief: which source holds which block, in which tier.

The pool (`cache.pool`) is truth about one replica; this is belief about many, fed by late events.
How far to believe a source is `fleet.trust`'s business.

    shelf (one per 64 sources)                    register (one per source)
    own hash | device  host    below              engine hash | own hash | references per tier
    h0       | 0b0011  0b0001  0                  e0          | h0       | 2 1 0 0
    h1       | 0b0010  0       0                  e1          | h1       | 1 0 0 0

A match walks the chain along a shelf and ends each source's run at its first hole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warmturn.errors import BrokenInvariant, InvalidInput
from warmturn.fleet import index_kernels as kernels
from warmturn.fleet.chain import IndexHashes
from warmturn.fleet.sources import Holder
from warmturn.fleet.tiers import Tier

__all__ = ["FleetIndex", "Matches", "PrefixMatch"]

_SOURCES_PER_SHELF = 64  # bits of a word
_SMALLEST = 64  # rows
_LINE_WORDS = 8  # of 64 bytes
DEFAULT_MAX_BLOCKS = 4 * 2**20
"""Blocks one source may hold: 64 M tokens in blocks of 16, more than any pool known to us."""


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """Leading blocks of a chain that one source holds, all in one tier or in several."""

    device: int = 0
    host: int = 0
    storage: int = 0
    """In storage or in a tier of unknown name."""
    near: int = 0
    """Each block on the device or on the host."""
    anywhere: int = 0
    """Each block in some tier: the longest prefix that need not be computed."""


class Matches:
    """What each source holds of one chain, as it was when asked."""

    def __init__(
        self, places: dict[Holder, tuple[int, int]], runs: list[npt.NDArray[np.int32]]
    ) -> None:
        self._places, self._runs = places, runs

    def of(self, source: Holder) -> PrefixMatch:
        """Return what `source` holds; nothing where the index does not know it."""
        place = self._places.get(source)
        if place is None or place[0] >= len(self._runs):
            return PrefixMatch()
        return PrefixMatch(*self._runs[place[0]][:, place[1]].tolist())


class FleetIndex:
    """Blocks of one base model over all sources, by own hash.

    Invariants, checked by `check()`:
    1. A source has a bit in a plane of a row exactly if its register holds a reference to that
       row's hash in a tier of that plane.
    2. Each row of a shelf has a bit in some plane; each key is found from its home.
    3. No shelf is more than three fifths full, no register three quarters; counts equal the rows.
    4. No source holds references to more than its `max_blocks` blocks.

    Of invariant 1 only "no bit without a reference" holds where one engine announced two hashes
    for one content: removing one takes the bit, since claiming too little is safe.
    """

    def __init__(self) -> None:
        self._shelves: list[_Shelf] = []
        self._registers: dict[Holder, _Register] = {}
        self._places: dict[Holder, tuple[int, int]] = {}

    @property
    def num_blocks(self) -> int:
        """(block, source) entries."""
        return sum(register.num_live for register in self._registers.values())

    @property
    def num_bytes(self) -> int:
        """Size of all tables."""
        shelves = sum(shelf.table.nbytes for shelf in self._shelves)
        return shelves + sum(register.table.nbytes for register in self._registers.values())

    @property
    def sources(self) -> tuple[Holder, ...]:
        """The sources known, in order of their arrival."""
        return tuple(self._registers)

    def add_source(self, source: Holder, *, max_blocks: int | None = None) -> None:
        """Take a source in; one that is known only gets its new limit.

        With `max_blocks`, the most it can hold in all tiers, room for all of it is made at once,
        so that no event waits for a table to grow. Without, tables grow as they fill, up to
        `DEFAULT_MAX_BLOCKS`. Raises `InvalidInput` for a limit below 1.
        """
        if max_blocks is not None and max_blocks < 1:
            raise InvalidInput(f"source {source}: a limit of {max_blocks} blocks; give at least 1")
        if source not in self._registers:
            shelf, bit = self._free_place()
            self._places = {**self._places, source: (shelf, bit)}  # matches keep the old one
            self._registers[source] = _Register(DEFAULT_MAX_BLOCKS)
            self._shelves[shelf].taken |= 1 << bit
        if max_blocks is not None:
            register = self._registers[source]
            register.max_blocks = max_blocks
            register.reserve(max(0, max_blocks - register.num_live))
            self._shelves[self._places[source][0]].reserve(max_blocks)

    def remove_source(self, source: Holder) -> None:
        """Forget a source and everything it holds; unknown sources are no error."""
        if source not in self._registers:
            return
        self.clear(source)
        shelf, bit = self._places[source]
        self._places = {s: place for s, place in self._places.items() if s != source}
        self._shelves[shelf].taken &= ~(1 << bit)
        del self._registers[source]

    def num_blocks_of(self, source: Holder) -> int:
        """Return how many blocks `source` holds, in whatever tiers."""
        return self._registers[source].num_live

    def store(self, source: Holder, keys: IndexHashes, names: IndexHashes, tier: Tier) -> bool:
        """Add one reference in `tier` to each block; engine hashes `keys [n]`, ours `names [n]`.

        Returns False, and changes nothing, where the source could then hold more than its
        `max_blocks`: what it announced is then wrong and has to be cleared. O(n).
        """
        register = self._registers[source]
        if register.num_live + len(keys) > register.max_blocks and (
            register.num_live + self._num_new(register, keys) > register.max_blocks
        ):
            return False
        shelf, bit = self._shelf_and_bit(source)
        register.reserve(len(keys))
        shelf.reserve(len(keys))
        kernels.store(
            *(shelf.table, shelf.counts, register.table, register.counts),
            *(keys, names, int(tier), bit),
        )
        return True

    def remove(self, source: Holder, keys: IndexHashes, tier: Tier) -> int:
        """Take one reference in `tier` from each block; return how many had none there."""
        shelf, bit = self._shelf_and_bit(source)
        register = self._registers[source]
        return kernels.remove(
            *(shelf.table, shelf.counts, register.table, register.counts),
            *(keys, int(tier), bit),
        )

    def names_of(self, source: Holder, keys: IndexHashes) -> IndexHashes:
        """Return our hashes of engine hashes `[n]`, 0 where the source never announced one.

        A block that is gone is still named for a while, so that it can come back from below.
        """
        names = np.empty(len(keys), np.uint64)
        kernels.find_names(self._registers[source].table, keys, names)
        return names

    def clear(self, source: Holder) -> None:
        """Forget all of a source's blocks, and what its hashes meant. O(its blocks)."""
        for tier in Tier:
            self.clear_tier(source, tier)
        self._registers[source].empty()

    def clear_tier(self, source: Holder, tier: Tier) -> None:
        """Forget a source's blocks in one tier; copies in other tiers stay. O(its blocks)."""
        shelf, bit = self._shelf_and_bit(source)
        register = self._registers[source]
        kernels.clear(
            *(shelf.table, shelf.counts, register.table, register.counts),
            *(int(tier), bit),
        )

    def match(self, chain: IndexHashes) -> Matches:
        """Return how many leading blocks of `chain [n]` each source holds. Mutates nothing."""
        return Matches(self._places, [shelf.match(chain) for shelf in self._shelves])

    def holds(self, source: Holder, chain: IndexHashes) -> npt.NDArray[np.bool_]:
        """Say of each block of `chain [n]` whether `source` holds it, in whatever tier."""
        shelf, bit = self._shelf_and_bit(source)
        found = np.zeros(len(chain), np.bool_)
        kernels.holds(shelf.table, chain, bit, found)
        return found

    def check(self) -> None:
        """Raise `BrokenInvariant` naming the first numbered invariant that does not hold. O(n)."""
        held = {source: _planes_held(register) for source, register in self._registers.items()}
        for source, register in self._registers.items():
            _hold(3, register.is_counted_right(), f"register of {source}")
            _hold(4, register.num_live <= register.max_blocks, f"{source}: {register.num_live}")
        for number, shelf in enumerate(self._shelves):
            _hold(3, shelf.is_counted_right(), f"shelf {number}")
            _hold(2, shelf.is_clean(), f"shelf {number}: bits without a key")
            for name, planes in shelf.rows():
                _hold(2, any(planes), f"row {name} holds nothing")
                _hold(2, kernels.finds(shelf.table, np.uint64(name)), f"row {name} is not found")
                for holder, plane in self._holders(number, planes):
                    is_held = holder is not None and name in held[holder][plane]
                    _hold(1, is_held, f"{holder}, row {name}")

    def _num_new(self, register: "_Register", keys: IndexHashes) -> int:
        """Count the keys without references; only asked near the limit."""
        live = register.table[register.table[:, 2] != 0, 0]
        return int(np.setdiff1d(keys, live).size)

    def _free_place(self) -> tuple[int, int]:
        for number, shelf in enumerate(self._shelves):
            for bit in range(_SOURCES_PER_SHELF):
                if not shelf.taken >> bit & 1:
                    return number, bit
        self._shelves.append(_Shelf())
        return len(self._shelves) - 1, 0

    def _shelf_and_bit(self, source: Holder) -> tuple["_Shelf", np.uint64]:
        shelf, bit = self._places[source]
        return self._shelves[shelf], np.uint64(1 << bit)

    def _holders(self, shelf: int, planes: list[int]) -> Iterator[tuple[Holder | None, int]]:
        by_bit = {bit: source for source, (s, bit) in self._places.items() if s == shelf}
        for plane, word in enumerate(planes):
            for bit in range(_SOURCES_PER_SHELF):
                if word >> bit & 1:
                    yield by_bit.get(bit), plane


class _Shelf:
    """Own hash to bits per source. Rows that hold nothing are taken out at once."""

    def __init__(self) -> None:
        self.table = _empty_shelf(_SMALLEST)
        self.counts = np.zeros(2, np.int64)
        self.taken = 0  # bits of the sources that stand here

    def match(self, chain: IndexHashes) -> npt.NDArray[np.int32]:
        runs = np.zeros((kernels.NUM_RUNS, _SOURCES_PER_SHELF), np.int32)
        kernels.match(self.table, chain, np.uint64(self.taken), runs)
        return runs

    def reserve(self, num_new: int) -> None:
        needed = int(self.counts[kernels.LIVE]) + num_new
        if 5 * needed > 3 * len(self.table):
            grown = _empty_shelf(max(_SMALLEST, 5 * needed // 2))
            kernels.rebuild_shelf(self.table, grown)
            self.table = grown

    def rows(self) -> Iterator[tuple[int, list[int]]]:
        """Yield each own hash with its bits in the three planes."""
        for name, *planes in self.table[self.table[:, 0] != 0].tolist():
            yield name, planes

    def is_counted_right(self) -> bool:
        live = int(np.count_nonzero(self.table[:, 0]))
        return live == self.counts[kernels.LIVE] and 5 * live <= 3 * len(self.table)

    def is_clean(self) -> bool:
        """Say whether empty rows hold no bits."""
        return not self.table[self.table[:, 0] == 0].any()


class _Register:
    """Engine hash to own hash and references, of one source."""

    def __init__(self, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self.empty()

    def empty(self) -> None:
        self.table = np.zeros((_SMALLEST, 3), np.uint64)
        self.counts = np.zeros(2, np.int64)

    @property
    def num_live(self) -> int:
        return int(self.counts[kernels.LIVE])

    def reserve(self, num_new: int) -> None:
        """Make room; rows without references go first, the table grows only for live ones."""
        if 4 * (int(self.counts[kernels.USED]) + num_new) > 3 * len(self.table):
            size = max(len(self.table), 2 * (self.num_live + num_new))
            fresh = np.zeros((size, 3), np.uint64)
            kernels.rebuild_register(self.table, fresh)
            self.table = fresh
            self.counts[kernels.USED] = self.num_live

    def is_counted_right(self) -> bool:
        used = int(np.count_nonzero(self.table[:, 0]))
        live = int(np.count_nonzero(self.table[:, 2]))
        is_right = [live, used] == self.counts.tolist()
        return is_right and 4 * used <= 3 * len(self.table)


def _empty_shelf(num_rows: int) -> npt.NDArray[np.uint64]:
    """Return zeroed rows that begin on a cache line: none then lies on two."""
    room = np.zeros(4 * num_rows + _LINE_WORDS, np.uint64)
    skipped = -(room.ctypes.data // room.itemsize) % _LINE_WORDS
    return room[skipped : skipped + 4 * num_rows].reshape(num_rows, 4)


def _planes_held(register: _Register) -> tuple[set[int], set[int], set[int]]:
    """Return the own hashes with references on the device, on the host, and below."""
    rows = register.table
    masks = (0xFFFF, 0xFFFF0000, 0xFFFFFFFF00000000)
    device, host, below = (set(rows[rows[:, 2] & np.uint64(m) != 0, 1].tolist()) for m in masks)
    return device, host, below


def _hold(number: int, holds: bool, what: str) -> None:
    if not holds:
        raise BrokenInvariant(f"fleet index: invariant {number} does not hold: {what}")
