"""The fleet's own 64-bit block hashes, computed from token ids.

Engines hash with seeds and algorithms of their own, so two replicas' hashes of equal tokens need
not agree. The index therefore names blocks by these, and keeps per source a map from the engine's
hash to ours. They are fast and not cryptographic: a collision costs a miss, never wrong bytes.

    sum_i  = mix(sum over the block of token * key of its position)  xor  digest of its words
    acc_i  = acc_(i-1) * M + sum_i   modulo 2**64,   acc_(-1) = digest of the adapter
    hash_i = mix(acc_i)

The words of a block are the content hashes of the images it covers, and in block 0 the salt; the
chain carries them on. Events list them without saying which is which, so they are not told apart.
`mix` can be undone, so a hash is also the state to go on from. The recurrence over n blocks is
one cumulative sum: acc_i = M**(i+1) * (acc_(-1) + sum of sum_j * M**-(j+1)), M odd.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from warmturn.blocks import ImageKey
from warmturn.errors import InvalidInput
from warmturn.types import TokenIds

__all__ = ["IndexHashes", "IndexScope", "extend_chain", "index_chain", "mix", "root_of"]

IndexHashes = npt.NDArray[np.uint64]
"""Own hashes of consecutive blocks, `[num_blocks]`; never 0, which marks an empty place."""

_MASK = 2**64 - 1
# 3 modulo 4: M - 1 is then divisible by 2 only once, so that swapping two blocks is seen.
_M = 0x9E3779B97F4A7C17
_C1, _C2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53  # finaliser of MurmurHash3
_C1_INVERSE, _C2_INVERSE = pow(_C1, -1, 2**64), pow(_C2, -1, 2**64)
_SHIFT = np.uint64(33)


@dataclass(frozen=True, slots=True)
class IndexScope:
    """What separates equal tokens within one base model."""

    salt: str | None = None
    adapter: str | None = None
    images: tuple[ImageKey, ...] = ()


def index_chain(token_ids: TokenIds, scope: IndexScope, *, block_size: int) -> IndexHashes:
    """Return the own hashes of a sequence's full blocks, `[len(token_ids) // block_size]`.

    32,768 tokens in blocks of 16 take some 0.1 ms. Raises `InvalidInput` for a block size below 1.
    """
    if block_size < 1:
        raise InvalidInput(f"block size {block_size} was asked for; it must be at least 1")
    num_blocks = len(token_ids) // block_size
    blocks = np.asarray(token_ids)[: num_blocks * block_size].reshape(num_blocks, block_size)
    return extend_chain(root_of(scope.adapter), blocks, _words_by_block(scope, block_size))


def root_of(adapter: str | None) -> int:
    """Return the hash that stands before block 0 of every sequence with this adapter, or none."""
    text = json.dumps(adapter).encode()  # typed: null is not "null"
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=b"fleet-root").digest())


def extend_chain(
    parent: int, blocks: npt.NDArray[np.int32], words: Mapping[int, Collection[str]] | None = None
) -> IndexHashes:
    """Return the hashes of `blocks [n, block_size]` that follow the block (or root) `parent`.

    `words` are those of single blocks, by index within the run, in any order. The offset of an image
    is left out: placeholder tokens and the chain before them fix where it stands.
    """
    if len(blocks) == 0:
        return np.empty(0, np.uint64)
    sums = _mixed(blocks.astype(np.uint64) @ _position_keys(blocks.shape[1]))
    for index, of_block in (words or {}).items():
        sums[index] ^= np.uint64(_digest_of(of_block))
    powers, inverses = _powers(1 << (len(blocks) - 1).bit_length())
    before = np.array(_unmixed(parent), np.uint64)
    scaled = sums * inverses[: len(blocks)]
    scaled[:1] += before
    # 0 marks an empty place of the index; a hash that happens to be 0 only loses its chain.
    return np.maximum(_mixed(np.cumsum(scaled, dtype=np.uint64) * powers[: len(blocks)]), 1)


def mix(values: IndexHashes) -> IndexHashes:
    """Return `values` spread evenly over 64 bits, one to one."""
    return _mixed(values.copy())


def _words_by_block(scope: IndexScope, block_size: int) -> dict[int, set[str]]:
    words: dict[int, set[str]] = {} if scope.salt is None else {0: {scope.salt}}
    for image in scope.images:
        for index in range(image.offset // block_size, -(-image.end // block_size)):
            words.setdefault(index, set()).add(image.content_hash)
    return words


def _mixed(values: IndexHashes) -> IndexHashes:
    """In place. Arrays wrap modulo 2**64 without a warning, as numpy's scalars do not."""
    values ^= values >> _SHIFT
    values *= np.uint64(_C1)
    values ^= values >> _SHIFT
    values *= np.uint64(_C2)
    values ^= values >> _SHIFT
    return values


def _unmixed(value: int) -> int:
    value ^= value >> 33  # a shift by more than half the width undoes itself
    value = value * _C2_INVERSE & _MASK
    value ^= value >> 33
    value = value * _C1_INVERSE & _MASK
    return value ^ value >> 33


def _digest_of(words: Collection[str]) -> int:
    text = json.dumps(sorted(set(words))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=b"fleet-words").digest())


@lru_cache(maxsize=16)
def _position_keys(block_size: int) -> IndexHashes:
    """Return one odd random key per position in a block, the same in every process."""
    return _mixed(np.arange(1, block_size + 1, dtype=np.uint64)) | np.uint64(1)


@lru_cache(maxsize=32)
def _powers(num: int) -> tuple[IndexHashes, IndexHashes]:
    """Return M**1 ... M**num and their inverses, modulo 2**64."""
    inverse = pow(_M, -1, 2**64)
    return (
        np.cumprod(np.full(num, _M, np.uint64), dtype=np.uint64),
        np.cumprod(np.full(num, inverse, np.uint64), dtype=np.uint64),
    )
