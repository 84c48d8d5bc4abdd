"""Bulk operations on the index's tables: one call per event or request, never one per block.

Two kinds of table, both open addressing with linear probing. A *shelf* says who holds a block:
`[size, 4]` rows of own hash and one bit per source for the device, for the host and for what lies
below; key and bits on one cache line, since a look-up pays for the first touch of a row and not
for its width. It is at most three fifths full: long probes cost branches that no processor
predicts, and at seven tenths a cold match takes twice as long. A *register* belongs to one source:
`[size, 3]` rows of the engine's hash (mixed), our hash, and four 16-bit reference counts, one per
tier. A register's row whose counts are all zero is kept until the next rebuild: a block that
returns from a lower tier, or is a parent, can still be named.

Compiled with numba where it is installed, interpreted where it is not: the same code. Only shifts,
comparisons and bit operations, since numpy's scalars warn where arithmetic wraps.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from warmturn.cache.pool_kernels import compiled

__all__ = ["LIVE", "NUM_RUNS", "USED", "clear", "find_names", "finds", "holds", "match"]
__all__ += ["rebuild_register", "rebuild_shelf", "remove", "store"]

Table: TypeAlias = npt.NDArray[np.uint64]
Slot: TypeAlias = Any
Word: TypeAlias = Any

LIVE, USED = 0, 1
"""Indices into a table's counts: rows that hold something; rows that are not empty."""

NUM_RUNS = 5
"""Rows of `match`'s result: device, host, below, device or host, any."""

_AHEAD = 64
_HALF = np.uint64(32)
_ZERO, _ONE, _MOST = np.uint64(0), np.uint64(1), np.uint64(0xFFFF)
_TIER_BITS = np.uint64(16)
_BELOW = np.uint64(0xFFFFFFFF00000000)  # counts of storage and of unknown tiers share a plane


@compiled
def _home(key: Word, size: int) -> Slot:
    """Where the search for `key` begins: its upper half scaled to the table's size."""
    return np.int64(((key >> _HALF) * np.uint64(size)) >> _HALF)


@compiled
def _find(table: Table, key: Word) -> Slot:
    """Return the row of `key`, or the empty row where the search ended."""
    size = table.shape[0]
    row = _home(key, size)
    while table[row, 0] != key and table[row, 0] != _ZERO:
        row += 1
        if row == size:
            row = 0
    return row


@compiled
def match(shelf: Table, chain: Table, sources: Word, out: npt.NDArray[np.int32]) -> Word:
    """Write to `out [NUM_RUNS, 64]` how many leading blocks of `chain` each source holds.

    `sources` has a bit per source that counts. `out` comes zeroed. Rows are read ahead of their
    use, so that the reads overlap; what is returned means nothing and keeps them from being
    optimised away.
    """
    touched = _ZERO
    rows = np.empty(_AHEAD, np.int64)
    device = host = below = near = anywhere = sources
    length = 0
    for start in range(0, chain.shape[0], _AHEAD):
        num = min(_AHEAD, chain.shape[0] - start)
        for i in range(num):
            touched ^= shelf[_home(chain[start + i], shelf.shape[0]), 0]
        for i in range(num):
            rows[i] = _find(shelf, chain[start + i])
        for i in range(num):
            on_device, on_host, further = (
                shelf[rows[i], 1],
                shelf[rows[i], 2],
                shelf[rows[i], 3],
            )  # all zero in the empty row of a block that nobody holds
            on_near = on_device | on_host
            on_any = on_near | further
            ended = (device & ~on_device) | (host & ~on_host) | (below & ~further)
            if ended | (near & ~on_near) | (anywhere & ~on_any):
                _end_runs(out[0], device & ~on_device, length)
                _end_runs(out[1], host & ~on_host, length)
                _end_runs(out[2], below & ~further, length)
                _end_runs(out[3], near & ~on_near, length)
                _end_runs(out[4], anywhere & ~on_any, length)
                device &= on_device
                host &= on_host
                below &= further
                near &= on_near
                anywhere &= on_any
                if anywhere == _ZERO:
                    return touched
            length += 1
    _end_runs(out[0], device, length)
    _end_runs(out[1], host, length)
    _end_runs(out[2], below, length)
    _end_runs(out[3], near, length)
    _end_runs(out[4], anywhere, length)
    return touched


@compiled
def _end_runs(runs: npt.NDArray[np.int32], ended: Word, length: int) -> None:
    bit = 0
    while ended != _ZERO:
        if ended & _ONE:
            runs[bit] = length
        ended >>= _ONE
        bit += 1


@compiled
def store(
    shelf: Table,
    shelf_counts: npt.NDArray[np.int64],
    register: Table,
    counts: npt.NDArray[np.int64],
    keys: Table,
    names: Table,
    tier: int,
    bit: Word,
) -> None:
    """Add one reference in `tier` to each block. The caller has made room for all of them.

    One engine hash may stand for two names (an engine whose hashes leave out the salt), so a row
    is found by both.
    """
    size = register.shape[0]
    shift = _TIER_BITS * np.uint64(tier)
    plane = min(tier, 2) + 1
    for i in range(keys.shape[0]):
        row = _home(keys[i], size)
        while register[row, 0] != _ZERO and not (
            register[row, 0] == keys[i] and register[row, 1] == names[i]
        ):
            row += 1
            if row == size:
                row = 0
        if register[row, 0] == _ZERO:
            register[row, 0] = keys[i]
            register[row, 1] = names[i]
            counts[USED] += 1
        references = register[row, 2]
        if references == _ZERO:
            counts[LIVE] += 1
        if (references >> shift) & _MOST != _MOST:  # saturates: never back to zero by overflow
            register[row, 2] = references + (_ONE << shift)
        place = _find(shelf, names[i])
        if shelf[place, 0] == _ZERO:
            shelf[place, 0] = names[i]
            shelf_counts[LIVE] += 1
        shelf[place, plane] |= bit


@compiled
def remove(
    shelf: Table,
    shelf_counts: npt.NDArray[np.int64],
    register: Table,
    counts: npt.NDArray[np.int64],
    keys: Table,
    tier: int,
    bit: Word,
) -> int:
    """Take one reference in `tier` from each block; return how many had none to take.

    Of an engine hash with two names both lose one: which is meant cannot be told, and to claim
    too little is safe.
    """
    size = register.shape[0]
    shift = _TIER_BITS * np.uint64(tier)
    unknown = 0
    for i in range(keys.shape[0]):
        row = _home(keys[i], size)
        found = False
        while register[row, 0] != _ZERO:
            if register[row, 0] == keys[i] and (register[row, 2] >> shift) & _MOST != _ZERO:
                found = True
                register[row, 2] -= _ONE << shift
                _note_gone(shelf, shelf_counts, register, counts, row, tier, bit)
            row += 1
            if row == size:
                row = 0
        if not found:
            unknown += 1
    return unknown


@compiled
def _note_gone(
    shelf: Table,
    shelf_counts: npt.NDArray[np.int64],
    register: Table,
    counts: npt.NDArray[np.int64],
    row: Slot,
    tier: int,
    bit: Word,
) -> None:
    """Take the source's bit from the shelf where its last reference in that plane is gone."""
    references = register[row, 2]
    if references == _ZERO:
        counts[LIVE] -= 1
    plane = min(tier, 2) + 1
    mask = _BELOW if plane == 3 else _MOST << (_TIER_BITS * np.uint64(tier))
    if references & mask == _ZERO:
        _take_bit(shelf, shelf_counts, register[row, 1], plane, bit)


@compiled
def _take_bit(
    shelf: Table, shelf_counts: npt.NDArray[np.int64], name: Word, plane: int, bit: Word
) -> None:
    place = _find(shelf, name)
    if shelf[place, 0] == _ZERO:
        return
    shelf[place, plane] &= ~bit
    if (shelf[place, 1] | shelf[place, 2] | shelf[place, 3]) == _ZERO:
        _close_gap(shelf, place)
        shelf_counts[LIVE] -= 1


@compiled
def _close_gap(shelf: Table, gap: Slot) -> None:
    """Empty a row and move later ones up, so that no tombstones pile up over years of churn."""
    size = shelf.shape[0]
    row = gap
    while True:
        row += 1
        if row == size:
            row = 0
        if shelf[row, 0] == _ZERO:
            break
        home = _home(shelf[row, 0], size)
        if (row - home) % size >= (row - gap) % size:  # its search passes the gap
            shelf[gap] = shelf[row]
            gap = row
    shelf[gap] = _ZERO


@compiled
def clear(
    shelf: Table,
    shelf_counts: npt.NDArray[np.int64],
    register: Table,
    counts: npt.NDArray[np.int64],
    tier: int,
    bit: Word,
) -> None:
    """Take all of the source's references in one tier."""
    shift = _TIER_BITS * np.uint64(tier)
    for row in range(register.shape[0]):
        if (register[row, 2] >> shift) & _MOST != _ZERO:
            register[row, 2] &= ~(_MOST << shift)
            _note_gone(shelf, shelf_counts, register, counts, row, tier, bit)


@compiled
def find_names(register: Table, keys: Table, out: Table) -> None:
    """Write to `out [len(keys)]` our hash of each engine hash, 0 where it was never seen."""
    for i in range(keys.shape[0]):
        row = _find(register, keys[i])
        out[i] = register[row, 1] if register[row, 0] != _ZERO else _ZERO


@compiled
def rebuild_shelf(old: Table, new: Table) -> None:
    """Copy all rows of `old` into the empty `new`."""
    for row in range(old.shape[0]):
        if old[row, 0] != _ZERO:
            new[_find(new, old[row, 0])] = old[row]


@compiled
def rebuild_register(old: Table, new: Table) -> None:
    """Copy the rows of `old` that hold references into the empty `new`."""
    size = new.shape[0]
    for row in range(old.shape[0]):
        if old[row, 2] != _ZERO:
            place = _home(old[row, 0], size)
            while new[place, 0] != _ZERO:  # two names of one key are two rows
                place += 1
                if place == size:
                    place = 0
            new[place] = old[row]


@compiled
def holds(shelf: Table, chain: Table, bit: Word, out: npt.NDArray[np.bool_]) -> None:
    """Write to `out [len(chain)]` whether the source of `bit` holds each block."""
    for i in range(chain.shape[0]):
        row = _find(shelf, chain[i])
        out[i] = (shelf[row, 1] | shelf[row, 2] | shelf[row, 3]) & bit != _ZERO


@compiled
def finds(shelf: Table, key: Word) -> bool:
    """Say whether a search of the shelf gets to `key`."""
    return bool(shelf[_find(shelf, key), 0] == key)
