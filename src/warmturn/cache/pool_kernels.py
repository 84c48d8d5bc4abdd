"""Bulk operations on the pool's arrays: one call per request, never one per block.

Compiled with numba where it is installed, interpreted where it is not: the same code,
so that the live engine and a simulator with a million sessions cannot disagree.
The pool (`pool.py`) owns the arrays, the meaning and the invariants; nothing here allocates.

Inside these arrays -1 means "none": they are the one place where a sentinel stands for absence.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

__all__ = ["CACHED", "FREE", "State", "acquire", "count_hits", "drop", "evict_front", "new_state"]
__all__ += ["refresh", "release", "store", "take_fresh"]

Array: TypeAlias = npt.NDArray[Any]
Slot: TypeAlias = int | np.int64
Function = TypeVar("Function", bound=Callable[..., object])

FREE, CACHED = 0, 1
"""Indices into `State.counts`: blocks in the free queue; blocks with reusable content."""

_FOLD = np.uint64(32)


class State(NamedTuple):
    """All of a pool's state. `n` is the number of blocks; block ids index the first axis."""

    words: npt.NDArray[np.uint64]  # [n, 4] hash of the content, valid where hashed
    hashed: npt.NDArray[np.uint8]  # [n] 1 where the block has reusable content
    parent: npt.NDArray[np.int32]  # [n] slot of the block before it in its chain, -1 at the root
    ref_count: npt.NDArray[np.int32]  # [n] tables that hold the block
    before: npt.NDArray[np.int32]  # [n + 1] free queue: neighbour towards the front
    after: npt.NDArray[np.int32]  # [n + 1] free queue: neighbour towards the tail; n = both ends
    buckets: npt.NDArray[np.int32]  # [power of two > 2n] open addressing: slot of a hash, or -1
    stored_s: npt.NDArray[np.float64]  # [n] when the content was stored
    used_s: npt.NDArray[np.float64]  # [n] when the content was last stored, hit or released
    counts: npt.NDArray[np.int64]  # [2] FREE, CACHED


def new_state(num_blocks: int) -> State:
    """Return the arrays of an empty pool: all blocks free, in order of their ids."""
    ring = np.arange(num_blocks + 1, dtype=np.int32)
    size = 1 << (2 * num_blocks).bit_length()
    return State(
        words=np.zeros((num_blocks, 4), np.uint64),
        hashed=np.zeros(num_blocks, np.uint8),
        parent=np.full(num_blocks, -1, np.int32),
        ref_count=np.zeros(num_blocks, np.int32),
        before=np.roll(ring, 1),
        after=np.roll(ring, -1),
        buckets=np.full(size, -1, np.int32),
        stored_s=np.zeros(num_blocks, np.float64),
        used_s=np.zeros(num_blocks, np.float64),
        counts=np.array([num_blocks, 0], np.int64),
    )


def compiled(function: Function) -> Function:
    """Compile `function` with numba, cached on disk; return it unchanged without numba."""
    try:
        import numba  # noqa: PLC0415 - optional
    except ModuleNotFoundError:  # the base install
        return function
    return cast("Function", numba.njit(cache=True, nogil=True)(function))


# --- the index: hash -> slot, linear probing -------------------------------------------------


@compiled
def _home(words: Array, row: Slot, mask: int) -> Slot:
    """Where the search for a hash begins. Digests are uniform, trace ids are consecutive."""
    folded = words[row, 0] ^ (words[row, 0] >> _FOLD) ^ words[row, 1]
    return np.int64(folded & np.uint64(mask))


@compiled
def _find(s: State, words: Array, row: int) -> Slot:
    """Return the slot that holds the content `words[row]`, or -1."""
    mask = s.buckets.shape[0] - 1
    place = _home(words, row, mask)
    while True:
        block = np.int64(s.buckets[place])
        if block < 0:
            return -1
        if (
            s.words[block, 0] == words[row, 0]
            and s.words[block, 1] == words[row, 1]
            and s.words[block, 2] == words[row, 2]
            and s.words[block, 3] == words[row, 3]
        ):
            return block
        place = (place + 1) & mask


@compiled
def _index_add(s: State, block: Slot) -> None:
    mask = s.buckets.shape[0] - 1
    place = _home(s.words, block, mask)
    while s.buckets[place] >= 0:
        place = (place + 1) & mask
    s.buckets[place] = block


@compiled
def _index_remove(s: State, block: Slot) -> None:
    """Remove and close the gap, so that no tombstones pile up over the pool's life."""
    mask = s.buckets.shape[0] - 1
    gap = _home(s.words, block, mask)
    while s.buckets[gap] != block:
        gap = (gap + 1) & mask
    place = gap
    while True:
        place = (place + 1) & mask
        other = np.int64(s.buckets[place])
        if other < 0:
            break
        # `other` may move into the gap unless its home lies behind the gap.
        if ((place - _home(s.words, other, mask)) & mask) >= ((place - gap) & mask):
            s.buckets[gap] = other
            gap = place
    s.buckets[gap] = -1


# --- the free queue: a ring through the extra node n ------------------------------------------


@compiled
def _unlink(s: State, block: Slot) -> None:
    before, after = s.before[block], s.after[block]
    s.after[before] = after
    s.before[after] = before
    s.counts[FREE] -= 1


@compiled
def _link_after(s: State, block: Slot, place: Slot) -> None:
    after = s.after[place]
    s.after[place] = block
    s.before[block] = place
    s.after[block] = after
    s.before[after] = block
    s.counts[FREE] += 1


@compiled
def _give_back(s: State, block: Slot) -> None:
    """Put a block without references into the queue: useless content first, fresh content last."""
    end = s.ref_count.shape[0]
    _link_after(s, block, np.int64(s.before[end]) if s.hashed[block] else end)


@compiled
def _forget(s: State, block: Slot) -> None:
    """Drop the content of a block; the slot stays where it is."""
    _index_remove(s, block)
    s.hashed[block] = 0
    s.parent[block] = -1
    s.counts[CACHED] -= 1


@compiled
def _evict(s: State, block: Slot, now: float, lost_words: Array, lost_s: Array) -> None:
    """Drop the content of an idle block; write its hash `[4]`, lifetime and idle time `[2]`."""
    lost_words[:] = s.words[block]
    lost_s[0] = now - s.stored_s[block]
    lost_s[1] = now - s.used_s[block]
    _forget(s, block)


# --- operations ---------------------------------------------------------------------------------


@compiled
def count_hits(s: State, words: Array, found: Array) -> tuple[int, int]:
    """Find the longest cached prefix of the chain `words`; write its slots to `found`.

    Returns (hits, idle hits: those in the free queue). Changes nothing.
    """
    idle = 0
    for i in range(words.shape[0]):
        block = _find(s, words, i)
        if block < 0:
            return i, idle
        found[i] = block
        if s.ref_count[block] == 0:
            idle += 1
    return words.shape[0], idle


@compiled
def acquire(s: State, blocks: Array, now: float, gaps_s: Array) -> int:
    """Add a reference to each of `blocks`; write the idle time that each reuse ended.

    Returns how many of them were idle.
    """
    idle = 0
    for block in blocks:
        if s.ref_count[block] == 0:
            _unlink(s, block)
            gaps_s[idle] = now - s.used_s[block]
            idle += 1
        s.ref_count[block] += 1
        s.used_s[block] = now
    return idle


@compiled
def take_fresh(s: State, out: Array, now: float, lost_words: Array, lost_s: Array) -> int:
    """Take `len(out)` blocks from the front of the queue, evicting what they held.

    The caller has checked that there are enough. Evicted content goes to
    `lost_words [len(out), 4]` and `lost_s [len(out), 2]` (lifetime, idle time).
    Returns how many were evicted.
    """
    end = s.ref_count.shape[0]
    lost = 0
    for i in range(out.shape[0]):
        block = np.int64(s.after[end])
        _unlink(s, block)
        if s.hashed[block]:
            _evict(s, block, now, lost_words[lost], lost_s[lost])
            lost += 1
        s.ref_count[block] = 1
        out[i] = block
    return lost


@compiled
def store(s: State, table: Array, words: Array, start: int, now: float, is_new: Array) -> None:
    """Name the content of the full blocks `table[start:len(words)]`; parents come first.

    Where the content is cached already, the table takes the cached block and gives its
    own copy back, so that one content never lies in two slots. `is_new[i - start]` is 1
    for content that was not cached before.
    """
    for i in range(start, words.shape[0]):
        block = np.int64(table[i])
        twin = _find(s, words, i)
        if twin >= 0:
            if s.ref_count[twin] == 0:
                _unlink(s, twin)
            s.ref_count[twin] += 1
            s.used_s[twin] = now
            s.ref_count[block] -= 1
            if s.ref_count[block] == 0:  # else something is still being copied into it
                _give_back(s, block)
            table[i] = twin
            is_new[i - start] = 0
            continue
        for w in range(4):
            s.words[block, w] = words[i, w]
        s.hashed[block] = 1
        s.parent[block] = table[i - 1] if i > 0 else -1
        s.stored_s[block] = now
        s.used_s[block] = now
        s.counts[CACHED] += 1
        _index_add(s, block)
        is_new[i - start] = 1


@compiled
def release(s: State, table: Array, now: float) -> None:
    """Take one reference from each block, the chain's tail first.

    Tail first means that the tail is evicted first: what is left of a conversation is
    always a prefix of it.
    """
    for i in range(table.shape[0] - 1, -1, -1):
        block = np.int64(table[i])
        s.ref_count[block] -= 1
        s.used_s[block] = now
        if s.ref_count[block] == 0:
            _give_back(s, block)


@compiled
def refresh(s: State, blocks: Array, now: float) -> None:
    """Move the idle ones of `blocks` to the tail of the queue, the chain's tail first."""
    for i in range(blocks.shape[0] - 1, -1, -1):
        block = np.int64(blocks[i])
        s.used_s[block] = now
        if s.ref_count[block] == 0:
            _unlink(s, block)
            _give_back(s, block)


@compiled
def evict_front(s: State, most: int, now: float, lost_words: Array, lost_s: Array) -> int:
    """Drop the content of up to `most` idle blocks in queue order; return how many."""
    end = s.ref_count.shape[0]
    lost = 0
    block = np.int64(s.after[end])
    while lost < most and block != end:
        following = np.int64(s.after[block])
        if s.hashed[block]:
            _evict(s, block, now, lost_words[lost], lost_s[lost])
            lost += 1
            _unlink(s, block)
            _give_back(s, block)
        block = following
    return lost


@compiled
def drop(s: State) -> None:
    """Drop all content. The caller has checked that no block is referenced."""
    s.hashed[:] = 0
    s.parent[:] = -1
    s.buckets[:] = -1
    s.counts[CACHED] = 0
