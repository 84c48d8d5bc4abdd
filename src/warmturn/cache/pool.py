"""The block pool of one replica: truth about which content lies in which slot.

Beliefs about many replicas, fed by late events, are `fleet.index`, not this.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warmturn.cache import pool_kernels as kernels
from warmturn.errors import BrokenInvariant, InvalidInput, NeverFits
from warmturn.types import BlockId, BlockIds, HashWords, RequestId

__all__ = ["Pool", "PoolChanges"]


@dataclass(frozen=True, slots=True)
class PoolChanges:
    """What happened to cached content since the last `Pool.drain`; times in seconds."""

    evicted: HashWords
    """`[n, 4]` in order of eviction: a chain's tail before its head."""
    lifetime_s: npt.NDArray[np.float64]
    """`[n]` from storing to eviction."""
    idle_s: npt.NDArray[np.float64]
    """`[n]` from last use to eviction: samples of the horizon."""
    reuse_gap_s: npt.NDArray[np.float64]
    """`[m]` how long each block that was hit had lain idle."""


class _Table:
    """The blocks one request holds, in order; the first `num_stored` have their hash."""

    __slots__ = ("blocks", "num_blocks", "num_stored")

    def __init__(self, blocks: BlockIds, num_blocks: int, num_stored: int) -> None:
        self.blocks = blocks
        self.num_blocks = num_blocks
        self.num_stored = num_stored

    def held(self) -> BlockIds:
        return self.blocks[: self.num_blocks]

    def grow(self, more: BlockIds) -> None:
        needed = self.num_blocks + len(more)
        if needed > len(self.blocks):
            self.blocks = np.resize(self.blocks, max(needed, 2 * len(self.blocks)))
        self.blocks[self.num_blocks : needed] = more
        self.num_blocks = needed


class Pool:
    """Blocks of `block_size` tokens, shared by content, evicted least recently used first.

    A block has an id (its slot) and, once full and stored, a hash (its content). Blocks
    that no request holds wait in the free queue; those with content are still hits there.
    New blocks come from the queue's front: blocks without content, then the content
    longest unused, a chain's tail before its head.

    Invariants, checked by `check()`:

    1. Every block is either referenced or in the free queue, never both.
    2. A block's reference count is the number of tables that hold it.
    3. The free queue is one ring; its length is `num_free`.
    4. The index maps exactly the blocks with content, each hash to one slot.
    5. A block with content has its parent's content in the pool too, and lies before its
       parent in the free queue: no block whose parent is gone can be matched.
    6. In the free queue blocks without content come before those with content.
    7. The stored part of a table is one chain: each block's parent is the block before it.

    Times (`now`, seconds on any one clock) are arguments; the pool reads no clock.
    State lies in arrays, one entry per block, and operations are bulk, one call per
    request. [free queue and tail-first order: vLLM docs/design/prefix_caching.md]
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """Raises `InvalidInput` unless both are at least 1."""
        if num_blocks < 1 or block_size < 1:
            raise InvalidInput(
                f"a pool of {num_blocks} blocks of {block_size} tokens was asked for; "
                "both numbers must be at least 1"
            )
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._state = kernels.new_state(num_blocks)
        self._tables: dict[RequestId, _Table] = {}
        self._lost: list[tuple[HashWords, npt.NDArray[np.float64]]] = []
        self._gaps: list[npt.NDArray[np.float64]] = []

    # --- what is there ---

    @property
    def num_free(self) -> int:
        """Blocks no request holds, content or not."""
        return int(self._state.counts[kernels.FREE])

    @property
    def num_cached(self) -> int:
        """Blocks with reusable content, held or not."""
        return int(self._state.counts[kernels.CACHED])

    def blocks_for(self, num_tokens: int) -> int:
        """Return how many blocks `num_tokens` tokens take."""
        return -(-num_tokens // self.block_size)

    def table(self, request_id: RequestId) -> BlockIds:
        """Return the slots `request_id` holds, in order; a view, valid until the next call."""
        return self._tables[request_id].held()

    def match(self, words: HashWords) -> int:
        """Return the longest cached prefix of the chain `words [n, 4]`, in blocks.

        Does not touch recency or reference counts. O(hit) look-ups.
        """
        return self._find(words)[1]

    def free_queue(self) -> list[BlockId]:
        """Return the free queue, front (evicted next) first. For tests and docs; O(n)."""
        order: list[BlockId] = []
        end = self.num_blocks
        block = int(self._state.after[end])
        while block != end and len(order) <= self.num_blocks:
            order.append(BlockId(block))
            block = int(self._state.after[block])
        return order

    def hash_of(self, block_id: BlockId) -> HashWords | None:
        """Return the hash `[4]` of the content in slot `block_id`, None without content."""
        return self._state.words[block_id].copy() if self._state.hashed[block_id] else None

    # --- what requests do ---

    def allocate(
        self, request_id: RequestId, words: HashWords, num_tokens: int, *, now: float
    ) -> int | None:
        """Give a request blocks for `num_tokens` tokens, cached ones first.

        `words` is the chain of the request's full blocks. Returns the number of leading
        blocks that are hits, or None for "not now": then nothing has changed. At least
        one token is always left to compute, so a hit ends at
        `(num_tokens - 1) // block_size` blocks at most.
        Raises `NeverFits` when the pool is too small even if it were empty.
        """
        needed = self.blocks_for(num_tokens)
        self._refuse_never(request_id, needed)
        found, hits, idle = self._find(words[: (num_tokens - 1) // self.block_size])
        if needed - hits > self.num_free - idle:
            return None
        self._acquire(found[:hits], now)
        table = _Table(np.empty(needed, np.int32), hits, hits)
        table.blocks[:hits] = found[:hits]
        table.grow(self._take(needed - hits, now))
        self._tables[request_id] = table
        return hits

    def append(self, request_id: RequestId, num_tokens: int, *, now: float) -> bool:
        """Make the table of `request_id` cover `num_tokens` tokens in all.

        Returns False for "not now": then nothing has changed.
        Raises `NeverFits` when the pool is too small even if it were empty.
        """
        table = self._tables[request_id]
        needed = self.blocks_for(num_tokens)
        self._refuse_never(request_id, needed)
        missing = needed - table.num_blocks
        if missing > self.num_free:
            return False
        if missing > 0:
            table.grow(self._take(missing, now))
        return True

    def store(
        self, request_id: RequestId, words: HashWords, *, now: float
    ) -> npt.NDArray[np.uint8]:
        """Name the full blocks of a request by the chain `words`; they become hits.

        Call it when the blocks' keys and values are computed. Returns, for each block
        named by this call in order, 1 where the content is new and 0 where it was cached
        already: the table then holds the cached block and its own copy is free again.
        """
        table = self._tables[request_id]
        start = table.num_stored
        if len(words) > table.num_blocks:
            raise BrokenInvariant(
                f"request {request_id!r} stores {len(words)} blocks and holds {table.num_blocks}"
            )
        is_new = np.empty(max(len(words) - start, 0), np.uint8)
        if len(is_new):
            kernels.store(self._state, table.blocks, words, start, now, is_new)
            table.num_stored = len(words)
        return is_new

    def release(self, request_id: RequestId, *, now: float) -> None:
        """Take the request's blocks back; those with content stay hits until evicted."""
        kernels.release(self._state, self._tables.pop(request_id).held(), now)

    def hold(self, holder: RequestId, request_id: RequestId, num_blocks: int) -> None:
        """Let `holder`, such as a transfer, hold the first `num_blocks` blocks of a request too.

        They stay as they are until `release(holder)`, whatever becomes of the request. All of the
        chain is held, or a block's parent could be evicted before it.
        """
        held = self._tables[request_id].held()[:num_blocks].copy()
        if holder in self._tables or len(held) < num_blocks:
            raise BrokenInvariant(
                f"{holder!r} cannot hold {num_blocks} blocks of {request_id!r}, which has "
                f"{len(self._tables[request_id].held())}"
            )
        self._state.ref_count[held] += 1
        self._tables[holder] = _Table(held, len(held), 0)

    def touch(self, words: HashWords, *, now: float) -> int:
        """Make the cached prefix of `words` most recently used; return its length in blocks."""
        found, hits, _ = self._find(words)
        kernels.refresh(self._state, found[:hits], now)
        return hits

    def evict(self, num_blocks: int, *, now: float) -> int:
        """Drop the content of up to `num_blocks` idle blocks, in the order LRU names them.

        Returns how many lost their content.
        """
        most = min(num_blocks, self.num_free)
        lost_words, lost_s = np.empty((most, 4), np.uint64), np.empty((most, 2), np.float64)
        lost = kernels.evict_front(self._state, most, now, lost_words, lost_s)
        self._note_lost(lost_words[:lost], lost_s[:lost])
        return int(lost)

    def reset(self) -> bool:
        """Forget all content; False, and nothing changes, while a request holds blocks."""
        if self._tables:
            return False
        kernels.drop(self._state)
        return True

    def drain(self) -> PoolChanges:
        """Return what was evicted and reused since the last call, and start anew."""
        lost, gaps = self._lost, self._gaps
        self._lost, self._gaps = [], []
        times = np.concatenate([s for _, s in lost]) if lost else np.empty((0, 2), np.float64)
        return PoolChanges(
            evicted=np.concatenate([w for w, _ in lost]) if lost else np.empty((0, 4), np.uint64),
            lifetime_s=times[:, 0],
            idle_s=times[:, 1],
            reuse_gap_s=np.concatenate(gaps) if gaps else np.empty(0, np.float64),
        )

    # --- steps of the operations ---

    def _refuse_never(self, request_id: RequestId, needed: int) -> None:
        if needed > self.num_blocks:
            raise NeverFits(
                f"request {request_id!r} needs {needed} blocks of {self.block_size} tokens, the "
                f"pool has {self.num_blocks}; raise --num-blocks or shorten the prompt",
                code="context_length_exceeded",
            )

    def _find(self, words: HashWords) -> tuple[BlockIds, int, int]:
        found = np.empty(len(words), np.int32)
        hits, idle = kernels.count_hits(self._state, words, found)
        return found, int(hits), int(idle)

    def _acquire(self, blocks: BlockIds, now: float) -> None:
        gaps = np.empty(len(blocks), np.float64)
        idle = kernels.acquire(self._state, blocks, now, gaps)
        if idle:
            self._gaps.append(gaps[:idle])

    def _take(self, num_blocks: int, now: float) -> BlockIds:
        fresh = np.empty(num_blocks, np.int32)
        lost_words = np.empty((num_blocks, 4), np.uint64)
        lost_s = np.empty((num_blocks, 2), np.float64)
        lost = kernels.take_fresh(self._state, fresh, now, lost_words, lost_s)
        self._note_lost(lost_words[:lost], lost_s[:lost])
        return fresh

    def _note_lost(self, words: HashWords, times: npt.NDArray[np.float64]) -> None:
        if len(words):
            self._lost.append((words, times))

    # --- invariants ---

    def check(self) -> None:
        """Raise `BrokenInvariant` naming the first numbered invariant that does not hold. O(n)."""
        queue = self.free_queue()
        self._check_references(queue)
        self._check_index()
        self._check_order(queue)
        self._check_tables()

    def _check_references(self, queue: list[BlockId]) -> None:
        state = self._state
        is_free = np.zeros(self.num_blocks, bool)
        is_free[queue] = True
        _hold(1, np.array_equal(is_free, state.ref_count == 0), "referenced xor free")
        held = np.zeros(self.num_blocks, np.int32)
        for table in self._tables.values():
            np.add.at(held, table.held(), 1)
        _hold(2, np.array_equal(held, state.ref_count), "reference counts equal tables")
        _hold(3, len(queue) == len(set(queue)) == self.num_free, "free queue is one ring")
        backwards = [int(state.before[b]) for b in [*queue, self.num_blocks]]
        _hold(3, backwards == [self.num_blocks, *queue], "free queue links agree both ways")

    def _check_index(self) -> None:
        state = self._state
        hashed = np.flatnonzero(state.hashed)
        indexed = np.sort(state.buckets[state.buckets >= 0])
        _hold(4, np.array_equal(indexed, hashed), "index holds exactly the blocks with content")
        _hold(4, len(hashed) == self.num_cached, "count of blocks with content")
        distinct = {state.words[b].tobytes() for b in hashed}
        _hold(4, len(distinct) == len(hashed), "one slot per content")
        found = np.array([self._find(state.words[b : b + 1])[1] for b in hashed])
        _hold(4, bool(np.all(found == 1)), "every content is found under its hash")

    def _check_order(self, queue: list[BlockId]) -> None:
        state, place = self._state, {block: i for i, block in enumerate(queue)}
        for block in np.flatnonzero(state.hashed):
            parent = int(state.parent[block])
            if parent < 0:
                continue
            _hold(5, bool(state.hashed[parent]), f"parent of block {block} has content")
            before = place.get(BlockId(int(block)), -1)  # -1: the block is held
            after = place.get(BlockId(parent), self.num_blocks)
            _hold(5, before < after, f"block {block} before its parent {parent}")
            _hold(5, before >= 0 or parent not in place, f"parent of held block {block} is held")
        content = [int(state.hashed[b]) for b in queue]
        _hold(6, content == sorted(content), "blocks without content first")

    def _check_tables(self) -> None:
        state = self._state
        for request_id, table in self._tables.items():
            stored = table.blocks[: table.num_stored]
            _hold(7, bool(np.all(state.hashed[stored])), f"stored blocks of {request_id!r}")
            parents = np.concatenate([[-1], stored[:-1]])[: len(stored)]
            _hold(7, np.array_equal(state.parent[stored], parents), f"chain of {request_id!r}")


def _hold(number: int, holds: bool, what: str) -> None:
    if not holds:
        raise BrokenInvariant(f"pool invariant {number} does not hold: {what}")
