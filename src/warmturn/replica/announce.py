"""What a replica's pool changed, as KV events."""

import numpy as np
import numpy.typing as npt

from warmturn.cache.events import BlockRemoved, BlockStored, CacheEvent
from warmturn.replica.sequence import Sequence
from warmturn.types import BlockHash, HashWords

__all__ = ["removed", "stored"]


def removed(evicted: HashWords) -> list[CacheEvent]:
    """Return one `BlockRemoved` per evicted hash `[n, 4]`, in order, as vLLM does."""
    return [BlockRemoved((BlockHash(words.tobytes()),)) for words in evicted]


def stored(sequence: Sequence, num_blocks: int, is_new: npt.NDArray[np.uint8]) -> list[CacheEvent]:
    """Return a `BlockStored` per run of new blocks.

    `is_new` speaks of the blocks `[num_blocks - len(is_new), num_blocks)` of the sequence.
    """
    first = num_blocks - len(is_new)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_new, [0]]).astype(np.int8)))
    return [
        _stored_run(sequence, first + int(start), first + int(stop))
        for start, stop in zip(edges[::2], edges[1::2], strict=True)
    ]


def _stored_run(sequence: Sequence, start: int, stop: int) -> BlockStored:
    chain = sequence.chain
    size = chain.block_size
    return BlockStored(
        block_hashes=tuple(chain.digest(i) for i in range(start, stop)),
        parent_block_hash=chain.digest(start - 1) if start else None,
        token_ids=sequence.tokens(start * size, stop * size),
        block_size=size,
        extra_keys=tuple(chain.extra_keys(i) for i in range(start, stop)),
    )
