"""vLLM's two cryptographic block hashes, bit for bit, without serialising block by block.

The recipe, as vLLM 0.32 has it: the root is the digest of a seed, and a block's hash is SHA-256
of `(parent, tuple of token ids, extra keys or None)`, serialised by pickle (protocol 5) or by
cbor2 in canonical form. The model is not in it: there a server has one model. A serialised
block is

    head, parent (32 bytes), body = token ids + extra keys

and only the parent depends on the block before, so bodies are made for all blocks at once
(`bodies.token_bodies`). Where numba is not installed, or a block is so long that pickle would
split it into frames, the recipe is followed literally, block by block.
"""

import pickle
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from warmturn.blocks.bodies import Bodies, can_write_bodies, token_bodies
from warmturn.blocks.digests import hash_chain, sha256
from warmturn.blocks.keys import BlockExtras, CacheScope, ExtraKeys
from warmturn.errors import MissingExtra
from warmturn.types import BlockHash, TokenIds

if TYPE_CHECKING:
    from _hashlib import HASH

__all__ = ["DEFAULT_SEED", "Sha256", "Sha256Cbor"]

DEFAULT_SEED: Final = "vllm-none-hash"
"""What vLLM derives its root from unless PYTHONHASHSEED is set; then it is that value."""

_NO_PARENT = bytes(32)


class Sha256:
    """vLLM's default, `--prefix-caching-hash-algo sha256`."""

    name = "sha256"

    def __init__(self, *, seed: str = DEFAULT_SEED) -> None:
        self._root = BlockHash(sha256(_pickled(seed)).digest())

    def root(self, scope: CacheScope, block_size: int) -> BlockHash:  # noqa: ARG002 - as in vLLM
        """Return NONE_HASH, the same for every model and block size."""
        return self._root

    def hash_blocks(self, parent: BlockHash, blocks: TokenIds, extras: BlockExtras) -> list[bytes]:
        """Hash the pickles of all rows; see `HashScheme`."""
        opening, closing = _pickle_tuple(blocks.shape[1])
        common = closing + _pickle_tail(extras.common)
        special = {i: closing + _pickle_tail(keys) for i, keys in extras.special.items()}
        bodies = _bodies(blocks, opening, common, special, as_cbor=False)
        if bodies is None:
            return _hash_by_recipe(parent, blocks, extras, _pickled)
        return hash_chain(parent, _PICKLE_HEADS.of(bodies.lengths), bodies.data)


class Sha256Cbor:
    """vLLM's `--prefix-caching-hash-algo sha256_cbor`. Raises `MissingExtra` without cbor2."""

    name = "sha256_cbor"

    def __init__(self, *, seed: str = DEFAULT_SEED) -> None:
        self._root = BlockHash(sha256(_cbor(seed)).digest())

    def root(self, scope: CacheScope, block_size: int) -> BlockHash:  # noqa: ARG002 - as in vLLM
        """Return NONE_HASH, the same for every model and block size."""
        return self._root

    def hash_blocks(self, parent: BlockHash, blocks: TokenIds, extras: BlockExtras) -> list[bytes]:
        """Hash the canonical CBOR of all rows; see `HashScheme`."""
        opening, common = _cbor_array(blocks.shape[1]), _cbor(extras.common)
        special = {i: _cbor(keys) for i, keys in extras.special.items()}
        bodies = _bodies(blocks, opening, common, special, as_cbor=True)
        if bodies is None:
            return _hash_by_recipe(parent, blocks, extras, _cbor)
        return hash_chain(parent, repeat(_CBOR_HEAD), bodies.data)


def _hash_by_recipe(
    parent: bytes, blocks: TokenIds, extras: BlockExtras, serialise: Callable[[object], bytes]
) -> list[bytes]:
    common = _as_received(extras.common)
    special = {i: _as_received(keys) for i, keys in extras.special.items()}
    return [
        parent := sha256(serialise((parent, tuple(row), special.get(i, common)))).digest()
        for i, row in enumerate(blocks.tolist())
    ]


def _bodies(
    blocks: TokenIds, opening: bytes, common: bytes, special: dict[int, bytes], *, as_cbor: bool
) -> Bodies | None:
    """Return opening + token ids + tail per block; None where only the recipe can tell."""
    longest_tail = max(map(len, (common, *special.values())))
    if not can_write_bodies(blocks.shape[1], len(opening) + longest_tail):
        return None
    bodies = token_bodies(blocks, prefix=opening, suffix=common, as_cbor=as_cbor)
    for index, tail in special.items():
        bodies.data[index] = bodies.data[index][: bodies.lengths[index] - len(common)] + tail
        bodies.lengths[index] += len(tail) - len(common)
    return bodies


# --- pickle, protocol 5: PROTO, FRAME, the tuple of three, STOP ---------------------------------


class _PickleHeads:
    """SHA-256 states by body length, which a pickle's frame states before it begins."""

    def __init__(self) -> None:
        self._states: npt.NDArray[Any] = np.empty(0, object)  # HASH by body length

    def of(self, lengths: npt.NDArray[np.int64]) -> "list[HASH]":
        longest = int(lengths.max())
        if longest >= len(self._states):
            self._states = np.array(
                [sha256(_pickle_head(length)) for length in range(longest + 1)], object
            )
        states: list[HASH] = self._states[lengths].tolist()
        return states


_PICKLE_HEADS = _PickleHeads()  # at most MAX_BODY_BYTES entries


def _pickle_head(num_body_bytes: int) -> bytes:
    """Return everything before the parent's 32 bytes."""
    frame = len(b"C\x20") + len(_NO_PARENT) + num_body_bytes
    return b"\x80\x05\x95" + frame.to_bytes(8, "little") + b"C\x20"


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)


def _pickle_tuple(num_items: int) -> tuple[bytes, bytes]:
    """Return what stands before and after the token ids; MEMOIZE (0x94) follows parent and tuple."""
    if num_items <= 3:  # TUPLE1, TUPLE2, TUPLE3 need no MARK
        return b"\x94", bytes((0x84 + num_items, 0x94))
    return b"\x94(", b"t\x94"


def _pickle_tail(keys: ExtraKeys | None) -> bytes:
    """Return what follows the token ids' tuple: the extra keys and the end.

    Cut off a real pickle, so that memo numbers (parent is 0, the token ids are 1) are right.
    """
    whole = _pickled((_NO_PARENT, (0,), _as_received(keys)))
    before = len(_pickle_head(0)) + len(_NO_PARENT) + len(b"\x94K\x00\x85\x94")
    return whole[before:]


def _as_received(keys: ExtraKeys | None) -> ExtraKeys | None:
    """Return the keys made of string objects as an engine process has them.

    Pickle writes an object that comes twice as a reference, and equal strings are not always
    one object. In an engine the tags are constants, one object each; every other string came
    over a socket, an object of its own (except that Python has only one of each Latin-1
    character).
    """
    if keys is None:
        return None
    return tuple((tag, *(_own_copy(field) for field in fields)) for tag, *fields in keys)


def _own_copy(field: str | int) -> str | int:
    if not isinstance(field, str):
        return field
    return field.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")


# --- CBOR, canonical: lengths in front, shortest form -------------------------------------------

_CBOR_HEAD = sha256(b"\x83\x58\x20")  # array of 3; byte string of 32


def _cbor_array(num_items: int) -> bytes:
    """Return the head of an array: major type 4 with the shortest length."""
    if num_items < 24:
        return bytes((0x80 + num_items,))
    num_length_bytes = 1 if num_items < 0x100 else 2 if num_items < 0x10000 else 4
    code = {1: 0x98, 2: 0x99, 4: 0x9A}[num_length_bytes]
    return bytes((code,)) + num_items.to_bytes(num_length_bytes, "big")


def _cbor(value: object) -> bytes:
    try:
        import cbor2  # noqa: PLC0415 - only this preset needs it
    except ImportError:
        raise MissingExtra("the hash scheme sha256_cbor", extra="vllm") from None
    data: bytes = cbor2.dumps(value, canonical=True)
    return data
