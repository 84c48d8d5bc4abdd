"""A conversation's chain that grows with its turns: what was hashed is not hashed again."""

import numpy as np

from warmturn.errors import InvalidInput
from warmturn.fleet.chain import IndexHashes, IndexScope, extend_chain, root_of
from warmturn.types import TokenIds

__all__ = ["GrowingChain"]

_FIRST_ROOM = 64


class GrowingChain:
    """Equals `index_chain` of all tokens appended so far; 8 bytes per block.

    Images are not supported: their places in the prompt are not known while it grows.
    """

    def __init__(self, scope: IndexScope, *, block_size: int) -> None:
        """Raises `InvalidInput` for a block size below 1, or a scope with images."""
        if block_size < 1 or scope.images:
            raise InvalidInput(
                f"a growing chain of {block_size} tokens per block and {len(scope.images)} images "
                "was asked for; give at least 1 token, and no images"
            )
        self.block_size = block_size
        self._root = root_of(scope.adapter)
        self._words = {} if scope.salt is None else {0: {scope.salt}}
        self._hashes = np.empty(_FIRST_ROOM, np.uint64)
        self.num_blocks = 0
        self.open_tokens: TokenIds = np.empty(0, np.int32)
        """Of the block that is not full, fewer than `block_size`."""

    @property
    def num_tokens(self) -> int:
        """Tokens appended."""
        return self.num_blocks * self.block_size + len(self.open_tokens)

    @property
    def num_bytes(self) -> int:
        """Size of the arrays."""
        return self._hashes.nbytes + self.open_tokens.nbytes

    def append(self, token_ids: TokenIds) -> None:
        """Go on with `token_ids`; O(their number)."""
        blocks, self.open_tokens = self._blocks(token_ids)
        self.num_blocks += self._write(blocks)

    def with_tail(self, token_ids: TokenIds) -> IndexHashes:
        """Return the chain as it would be with `token_ids` appended; a copy."""
        blocks, _ = self._blocks(token_ids)
        num = self.num_blocks + self._write(blocks)  # first: it may make a larger array
        return self._hashes[:num].copy()

    def cut(self, num_blocks: int, open_tokens: TokenIds) -> None:
        """Go back to an earlier state of this chain."""
        self.num_blocks, self.open_tokens = num_blocks, open_tokens

    def _blocks(self, token_ids: TokenIds) -> tuple[TokenIds, TokenIds]:
        tokens = np.concatenate((self.open_tokens, token_ids))
        num = len(tokens) // self.block_size
        full = tokens[: num * self.block_size].reshape(num, self.block_size)
        return full, tokens[num * self.block_size :].copy()

    def _write(self, blocks: TokenIds) -> int:
        """Put the hashes of `blocks [n, block_size]` behind those there are; return n."""
        end = self.num_blocks + len(blocks)
        if end > len(self._hashes):
            grown = np.empty(max(end, 3 * len(self._hashes) // 2), np.uint64)
            grown[: self.num_blocks] = self._hashes[: self.num_blocks]
            self._hashes = grown
        is_first = self.num_blocks == 0
        parent = self._root if is_first else int(self._hashes[self.num_blocks - 1])
        words = self._words if is_first else None
        self._hashes[self.num_blocks : end] = extend_chain(parent, blocks, words)
        return len(blocks)
