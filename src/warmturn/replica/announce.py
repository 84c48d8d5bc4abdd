"""What a replica's pool changed, as KV events."""

from collections.abc import Iterable
from itertools import groupby

import numpy as np
import numpy.typing as npt

from warmturn.cache.events import BlockRemoved, BlockStored, CacheEvent
from warmturn.cache.tiers import TierChange
from warmturn.cache.transfers import TierName
from warmturn.replica.sequence import Sequence
from warmturn.types import BlockHash, HashWords

__all__ = ["moved", "removed", "stored"]

_MEDIA = {TierName.HOST: "CPU", TierName.DISK: "STORAGE"}
"""vLLM's words. The shared store is not announced: nobody hears when a block leaves it."""


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


def moved(changes: Iterable[TierChange]) -> list[CacheEvent]:
    """Return what changed in lower tiers, in order: hashes only, whose tokens the device's tell."""
    events: list[CacheEvent] = []
    for (what, tier), group in groupby(changes, key=lambda change: change[:2]):
        hashes = tuple(key for _, _, key in group)
        if what == "removed":
            events.extend(BlockRemoved((key,), _MEDIA[tier]) for key in hashes)
        else:
            events.append(
                BlockStored(
                    block_hashes=hashes,
                    parent_block_hash=None,
                    token_ids=np.empty(0, np.int32),
                    block_size=0,
                    medium=_MEDIA[tier],
                )
            )
    return events
