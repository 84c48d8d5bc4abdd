# mypy: disallow-untyped-defs=false
"""The compiled loops behind `bodies`. Importing this needs numba; `bodies` does it when asked.

Widths of token ids are mixed at random, so the loops choose without branches and write eight
bytes at a time: what exceeds the width is overwritten by what follows. Unsigned types
everywhere spare the checks for negative indices.
"""

import numba
import numpy as np
from numba import uint8, uint32, uint64, uintp

# numba infers the types of these loops; annotations would describe other ones.
# ruff: noqa: ANN001, ANN201, ANN202

__all__ = ["write_bodies"]

_MSGPACK_ARRAY32, _MSGPACK_BIN16 = 0xDD, 0xC5
# By width: BININT1, BININT2, BININT.
_PICKLE_CODES = np.frombuffer(b"_KM_J", np.uint8).astype(np.uint64)
_CBOR_CODES = np.frombuffer(b"_\x18\x19_\x1a", np.uint8).astype(np.uint64)
_CBOR_IMMEDIATE_BELOW = 24

# One signature, also for read-only input: a second one would cost a second compilation.
_Bytes = numba.types.Array(uint8, 1, "C", readonly=True)
_Blocks = numba.types.Array(numba.int32, 2, "C", readonly=True)
_SIGNATURE = numba.int64(
    _Blocks, _Bytes, _Bytes, numba.boolean, uint8[::1], numba.types.Array(numba.int64, 1, "C")
)

_compiled = numba.njit(cache=True, nogil=True)


@_compiled
def _put_eight(out, at, word):
    """Write `word`, low byte first; the compiler makes one store of it."""
    out[at] = uint8(word)
    out[at + uintp(1)] = uint8(word >> uint64(8))
    out[at + uintp(2)] = uint8(word >> uint64(16))
    out[at + uintp(3)] = uint8(word >> uint64(24))
    out[at + uintp(4)] = uint8(word >> uint64(32))
    out[at + uintp(5)] = uint8(word >> uint64(40))
    out[at + uintp(6)] = uint8(word >> uint64(48))
    out[at + uintp(7)] = uint8(word >> uint64(56))


@_compiled
def _width(token):
    """Bytes that hold `token`: 1, 2 or 4."""
    two = uintp(token > uint32(0xFF))
    four = uintp(token > uint32(0xFFFF))
    return uintp(1) + two + (four << uintp(1))


@_compiled
def _swapped(value):
    """Return the four bytes of `value` in reverse order."""
    low = uint32(value << uint32(24)) | ((value << uint32(8)) & uint32(0x00FF0000))
    return low | ((value >> uint32(8)) & uint32(0x0000FF00)) | (value >> uint32(24))


@_compiled
def _put_pickle_ints(out, at, tokens):
    """Write per token a code and 1, 2 or 4 bytes, low byte first; return the end."""
    for column in range(tokens.shape[0]):
        token = uint32(tokens[column])
        width = _width(token)
        _put_eight(out, at, _PICKLE_CODES[width] | (uint64(token) << uint64(8)))
        at += width + uintp(1)
    return at


@_compiled
def _put_cbor_ints(out, at, tokens):
    """Write per token one byte, or a code and 1, 2 or 4 bytes, high byte first; return the end."""
    for column in range(tokens.shape[0]):
        token = uint32(tokens[column])
        if token < uint32(_CBOR_IMMEDIATE_BELOW):  # rare, hence well predicted
            out[at] = uint8(token)
            at += uintp(1)
            continue
        width = _width(token)
        highest_first = _swapped(uint32(token << uint32(uintp(32) - (width << uintp(3)))))
        _put_eight(out, at, _CBOR_CODES[width] | (uint64(highest_first) << uint64(8)))
        at += width + uintp(1)
    return at


@_compiled
def _first_eight(data):
    word = uint64(0)
    for k in range(min(8, data.shape[0])):
        word |= uint64(data[k]) << uint64(8 * k)
    return word


@_compiled
def _put_bytes(out, at, data, first_eight):
    _put_eight(out, at, first_eight)
    if data.shape[0] > 8:  # setting up the loop costs more than eight bytes
        for k in range(8, data.shape[0]):
            out[at + uintp(k)] = data[k]
    return at + uintp(data.shape[0])


@numba.njit(_SIGNATURE, cache=True, nogil=True)
def write_bodies(blocks, prefix, suffix, as_cbor, out, lengths):
    """Write `prefix` + integers + `suffix` per row of `blocks` as one msgpack array of bytes.

    `blocks` is `[num_blocks, block_size]` without negative ids. `out` must have room for the
    widest form and 8 bytes more; `lengths` `[num_blocks]` is filled. Returns the bytes used.
    """
    num_blocks = blocks.shape[0]
    out[0] = _MSGPACK_ARRAY32
    for k in range(4):
        out[1 + k] = (num_blocks >> (24 - 8 * k)) & 0xFF
    prefix_word, suffix_word = _first_eight(prefix), _first_eight(suffix)
    at = uintp(5)
    for row in range(num_blocks):
        start = at + uintp(3)  # behind this body's msgpack header
        at = _put_bytes(out, start, prefix, prefix_word)
        if as_cbor:
            at = _put_cbor_ints(out, at, blocks[row])
        else:
            at = _put_pickle_ints(out, at, blocks[row])
        at = _put_bytes(out, at, suffix, suffix_word)
        length = at - start
        out[start - uintp(3)] = _MSGPACK_BIN16
        out[start - uintp(2)] = uint8(length >> uintp(8))
        out[start - uintp(1)] = uint8(length)
        lengths[row] = length
    return at
