"""How a block is hashed: the protocol, our own scheme, and the choice by name.

Every scheme makes a chain, `h[i] = SHA-256(f(h[i-1], tokens of block i, extra keys of block i))`,
from a root. They differ in `f` and in the root:

* `native`: fixed binary framing; model and block size are hashed into the root.
* `sha256`: `f` is pickle, protocol 5, of `(parent, token ids, extra keys)`.
* `sha256_cbor`: `f` is canonical CBOR of the same.
"""

from itertools import repeat
from typing import Protocol

import numpy as np

from warmturn.blocks.digests import hash_chain, sha256
from warmturn.blocks.keys import BlockExtras, CacheScope, ExtraKeys
from warmturn.blocks.presets import DEFAULT_SEED, Sha256, Sha256Cbor
from warmturn.errors import InvalidInput
from warmturn.types import BlockHash, TokenIds

__all__ = ["SCHEME_NAMES", "HashScheme", "Native", "scheme_named"]

SCHEME_NAMES = ("native", "sha256", "sha256_cbor")

_NO_HEAD = sha256()


class HashScheme(Protocol):
    """Turns blocks of tokens into a chain of 32-byte hashes. Holds no state of a chain."""

    @property
    def name(self) -> str:
        """The name `scheme_named` takes."""
        ...

    def root(self, scope: CacheScope, block_size: int) -> BlockHash:
        """Return the parent of block 0."""
        ...

    def hash_blocks(self, parent: BlockHash, blocks: TokenIds, extras: BlockExtras) -> list[bytes]:
        """Return the hash of each row of `blocks` `[num_blocks, block_size]`, in order.

        `parent` is the hash of the block before the first row, or the root. `blocks` is int32
        without negative ids.
        """
        ...


class Native:
    """The scheme of this package, for content identity between its own parts.

    A block's message is parent (32 bytes), token ids (int32, little-endian), extra keys. The
    root fixes the block size and so where the token ids end; each extra key is a letter for its
    kind and its fields, each text with its length in front. No two inputs share a message.
    """

    name = "native"

    def root(self, scope: CacheScope, block_size: int) -> BlockHash:
        """Hash the scheme's name and version, the model and the block size."""
        message = b"warmturn block chain 1\0" + _framed(scope.model) + _int64(block_size)
        return BlockHash(sha256(message).digest())

    def hash_blocks(self, parent: BlockHash, blocks: TokenIds, extras: BlockExtras) -> list[bytes]:
        """Hash rows of fixed width, which numpy cuts in one go."""
        little = np.ascontiguousarray(blocks, dtype="<i4")
        bodies: list[bytes] = little.view(f"V{4 * blocks.shape[1]}")[:, 0].tolist()
        if extras.common is not None:
            suffix = _native_extras(extras.common)
            bodies = [body + suffix for body in bodies]
        for index, keys in extras.special.items():
            bodies[index] = little[index].tobytes() + _native_extras(keys)
        return hash_chain(parent, repeat(_NO_HEAD), bodies)


def scheme_named(name: str, *, seed: str = DEFAULT_SEED) -> HashScheme:
    """Return the scheme called `name`; `seed` concerns the presets only.

    For a vLLM server started with PYTHONHASHSEED, `seed` is that variable's value as text.
    Raises `InvalidInput` for an unknown name, `MissingExtra` for `sha256_cbor` without cbor2.
    """
    match name:
        case "native":
            return Native()
        case "sha256":
            return Sha256(seed=seed)
        case "sha256_cbor":
            return Sha256Cbor(seed=seed)
    raise InvalidInput(
        f"hash scheme {name!r} was asked for; there are {', '.join(SCHEME_NAMES)} "
        "(vLLM's xxhash and xxhash_cbor are random per process unless seeded, and not built)"
    )


def _native_extras(keys: ExtraKeys) -> bytes:
    return b"".join(
        _KIND[str(tag)] + b"".join(_framed(f) if isinstance(f, str) else _int64(f) for f in fields)
        for tag, *fields in keys
    )


_KIND = {"lora": b"A", "mm": b"I", "cache_salt": b"S"}


def _framed(text: str) -> bytes:
    """Text as UTF-8 with its length in front."""
    data = text.encode()
    return _int64(len(data)) + data


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)
