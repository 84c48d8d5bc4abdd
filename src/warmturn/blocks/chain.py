"""The chain of block hashes of one token sequence, grown as the sequence grows.

    token ids    t0 t1 t2 t3 | t4 t5 t6 t7 | t8 t9        (block size 4)
    chain        root -> h0 ---> h1              t8 t9 wait for their block to fill

Only full blocks are hashed, so two sequences have the same first n hashes exactly if they have
the same scope and the same first n blocks.
"""

import numpy as np
import numpy.typing as npt

from warmturn.blocks.keys import CacheScope, EventKeys, block_extras, event_keys_of, extra_keys_of
from warmturn.blocks.schemes import HashScheme
from warmturn.errors import InvalidInput, InvalidRequest
from warmturn.types import BlockHash, HashWords, TokenIds

__all__ = ["MAX_TOKEN_ID", "ChainBuilder", "chain_words"]

MAX_TOKEN_ID = 2**31 - 1

_WORDS = 4  # uint64 words of a 32-byte hash


class ChainBuilder:
    """One sequence's chain. Appending tokens hashes only the blocks that they fill.

    Raises `InvalidInput` for a block size below 1.

    Invariants:
    1. `num_blocks == num_tokens // block_size`.
    2. `words` once returned never change: hashes are only appended.
    """

    def __init__(self, scope: CacheScope, *, block_size: int, scheme: HashScheme) -> None:
        if block_size < 1:
            raise InvalidInput(f"block size {block_size} was asked for; it must be at least 1")
        self.scope = scope
        self.block_size = block_size
        self.root: BlockHash = scheme.root(scope, block_size)
        """Parent of block 0; it names no block itself."""
        self._scheme = scheme
        self._buffer: HashWords = np.empty((0, _WORDS), np.uint64)  # capacity, not content
        self._num_blocks = 0
        self._unhashed: TokenIds = np.empty(0, np.int32)  # fewer than block_size

    @property
    def num_tokens(self) -> int:
        """Tokens appended so far."""
        return self._num_blocks * self.block_size + len(self._unhashed)

    @property
    def num_blocks(self) -> int:
        """Full blocks, all of them hashed."""
        return self._num_blocks

    @property
    def words(self) -> HashWords:
        """The chain `[num_blocks, 4]`, read-only and without a copy. Later calls return more."""
        view = self._buffer[: self._num_blocks]
        view.flags.writeable = False
        return view

    def extend(self, token_ids: TokenIds) -> None:
        """Append tokens `[num_new]`; the array may be reused afterwards.

        Raises `InvalidRequest`, with nothing appended, unless they are integers from 0 to
        2**31 - 1 in one dimension.
        """
        tokens = _checked(token_ids)
        if len(self._unhashed):
            tokens = np.concatenate((self._unhashed, tokens))
        num_new = len(tokens) // self.block_size
        num_hashed = num_new * self.block_size
        if num_new:
            self._append(tokens[:num_hashed].reshape(num_new, self.block_size))
        self._unhashed = tokens[num_hashed:].copy()

    def digest(self, block_index: int) -> BlockHash:
        """Return one block's hash. Raises `IndexError` outside `[0, num_blocks)`."""
        if not 0 <= block_index < self._num_blocks:
            raise IndexError(
                f"block {block_index} was asked for; the chain has {self._num_blocks} full blocks"
            )
        return BlockHash(self._buffer[block_index].tobytes())

    def extra_keys(self, block_index: int) -> EventKeys | None:
        """Return what a KV event publishes beside the block's hash; None for most blocks."""
        return event_keys_of(extra_keys_of(self.scope, block_index, self.block_size))

    def _append(self, blocks: TokenIds) -> None:
        num_new = len(blocks)
        extras = block_extras(
            self.scope,
            first_block=self._num_blocks,
            num_blocks=num_new,
            block_size=self.block_size,
        )
        parent = self.digest(self._num_blocks - 1) if self._num_blocks else self.root
        hashes = b"".join(self._scheme.hash_blocks(parent, blocks, extras))
        words = np.frombuffer(hashes, np.uint64).reshape(num_new, _WORDS)
        end = self._num_blocks + num_new
        if self._num_blocks:
            self._reserve(end)
            self._buffer[self._num_blocks : end] = words
        else:
            self._buffer = words  # read-only and full; the next append makes room elsewhere
        self._num_blocks = end

    def _reserve(self, num_blocks: int) -> None:
        """Grow by doubling. Views handed out keep the old array, whose content stays true."""
        if num_blocks > len(self._buffer):
            grown = np.empty((max(num_blocks, 2 * len(self._buffer)), _WORDS), np.uint64)
            grown[: self._num_blocks] = self._buffer[: self._num_blocks]
            self._buffer = grown


def chain_words(
    token_ids: TokenIds, scope: CacheScope, *, block_size: int, scheme: HashScheme
) -> HashWords:
    """Return the hashes of all full blocks of a sequence, `[len(token_ids) // block_size, 4]`.

    Raises as `ChainBuilder` and its `extend` do.
    """
    chain = ChainBuilder(scope, block_size=block_size, scheme=scheme)
    chain.extend(token_ids)
    return chain.words


def _checked(token_ids: npt.ArrayLike) -> TokenIds:
    tokens = np.asarray(token_ids)
    if tokens.size == 0:
        return np.empty(0, np.int32)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise InvalidRequest(
            f"token ids came as {tokens.dtype} in {tokens.ndim} dimensions; "
            "send one flat list of integers",
            param="prompt",
        )
    too_high = tokens.dtype != np.int32 and int(tokens.max()) > MAX_TOKEN_ID
    if too_high or int(tokens.min()) < 0:
        position = int(np.argmax((tokens < 0) | (tokens > MAX_TOKEN_ID)))
        raise InvalidRequest(
            f"token id {tokens[position]} at position {position} is outside 0 to {MAX_TOKEN_ID}; "
            "send ids of the model's vocabulary",
            param="prompt",
        )
    return tokens.astype(np.int32, copy=False)
