"""What a replica without events holds, guessed from what was sent there.

The replica is imitated by a pool of its capacity (the very `cache.Pool`), so that what would have
been evicted there leaves the index as well. Answers correct the guess: where fewer tokens were
cached than predicted, the real pool is smaller than thought, or others use it too.
"""

import numpy as np

from warmturn.cache.pool import Pool
from warmturn.errors import BrokenInvariant
from warmturn.fleet.chain import IndexHashes
from warmturn.fleet.index import FleetIndex
from warmturn.fleet.sources import SourceId
from warmturn.fleet.tiers import Tier
from warmturn.types import HashWords, RequestId

__all__ = ["ApproximateSource"]

_SHRINK, _GROW = 0.95, 1.01
"""Per answer that fell short, and per answer that did not: five good ones undo a bad one."""
_SMALLEST_SHARE = 0.1
_REQUEST = RequestId("routed")


class ApproximateSource:
    """One source imitated by a pool. Its entries in the index are its own hashes, on the device."""

    def __init__(
        self, source: SourceId, index: FleetIndex, *, num_blocks: int, block_size: int
    ) -> None:
        """`num_blocks` is the replica's real capacity, as its metrics tell."""
        self.source = source
        self.block_size = block_size
        self._index = index
        self._pool = Pool(num_blocks, block_size)
        self._usable = float(num_blocks)
        index.add_source(source, max_blocks=num_blocks)

    @property
    def usable_blocks(self) -> int:
        """How much of the capacity answers so far speak for."""
        return int(self._usable)

    def routed(self, chain: IndexHashes, *, now: float) -> None:
        """Count a request's full blocks as held, at once: a burst comes before any answer.

        What exceeds the pool was never kept there: only the beginning is counted.
        """
        words = _as_words(chain[: self.usable_blocks])
        if not len(words):
            return
        hits = self._pool.allocate(_REQUEST, words, len(words) * self.block_size, now=now)
        if hits is None:  # only other requests could be in the way, and there are none
            raise BrokenInvariant(f"the imitated pool of {self.source} is held by nobody, yet full")
        is_new = self._pool.store(_REQUEST, words, now=now)
        self._pool.release(_REQUEST, now=now)
        self._pool.evict(max(0, self._pool.num_cached - self.usable_blocks), now=now)
        lost = np.ascontiguousarray(self._pool.drain().evicted[:, 0])
        fresh = chain[hits : len(words)][is_new == 1]
        self._index.remove(self.source, lost, Tier.DEVICE)  # first: one block may leave and return
        self._index.store(self.source, fresh, fresh, Tier.DEVICE)

    def answered(self, *, predicted_tokens: int, delivered_tokens: int) -> None:
        """Learn from one answer's `cached_tokens`; takes effect with the next request."""
        capacity = float(self._pool.num_blocks)
        factor = _SHRINK if delivered_tokens + self.block_size <= predicted_tokens else _GROW
        lowest = max(1.0, _SMALLEST_SHARE * capacity)
        self._usable = min(capacity, max(lowest, self._usable * factor))

    def forget(self) -> None:
        """The replica restarted or reset its cache."""
        self._pool.reset()
        self._index.clear(self.source)


def _as_words(chain: IndexHashes) -> HashWords:
    words = np.zeros((len(chain), 4), np.uint64)
    words[:, 0] = chain
    return words
