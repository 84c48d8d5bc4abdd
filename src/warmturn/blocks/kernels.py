# mypy: disallow-untyped-defs=false
"""The compiled loops behind `bodies`. Importing this needs numba; `bodies` does it when asked.

Widths of token ids are mixed at random, so the loops choose without branches: all four bytes
are written each time, and what exceeds the width is overwritten by what follows. Unsigned
types everywhere spare the checks for negative indices.
"""

import numba
import numpy as np
from numba import uint8, uint32, uintp

# numba infers the types of these loops; annotations would describe other ones.
# ruff: noqa: ANN001, ANN201, ANN202

__all__ = ["write_bodies"]

_MSGPACK_ARRAY32, _MSGPACK_BIN16 = 0xDD, 0xC5
_PICKLE_CODES = np.frombuffer(b"_KM_J", np.uint8)  # by width: BININT1, BININT2, BININT
_CBOR_CODES = np.frombuffer(b"_\x18\x19_\x1a", np.uint8)
_CBOR_IMMEDIATE_BELOW = 24

# One signature, also for read-only input: a second one would cost a second compilation.
_Bytes = numba.types.Array(uint8, 1, "C", readonly=True)
_Blocks = numba.types.Array(numba.int32, 2, "C", readonly=True)
_SIGNATURE = numba.int64(
    _Blocks, _Bytes, _Bytes, numba.boolean, uint8[::1], numba.types.Array(numba.int64, 1, "C")
)

_compiled = numba.njit(cache=True, nogil=True)


@_compiled
def _width(token):
    """Bytes that hold `token`: 1, 2 or 4."""
    two = uintp(token > uint32(0xFF))
    four = uintp(token > uint32(0xFFFF))
    return uintp(1) + two + (four << uintp(1))


@_compiled
def _put_pickle_ints(out, at, tokens):
    """Write per token a code and 1, 2 or 4 bytes, low byte first; return the end."""
    for column in range(tokens.shape[0]):
        token = uint32(tokens[column])
        width = _width(token)
        out[at] = _PICKLE_CODES[width]
        out[at + uintp(1)] = uint8(token)
        out[at + uintp(2)] = uint8(token >> uint32(8))
        out[at + uintp(3)] = uint8(token >> uint32(16))
        out[at + uintp(4)] = uint8(token >> uint32(24))
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
        aligned = uint32(token << uint32(uintp(32) - (width << uintp(3))))
        out[at] = _CBOR_CODES[width]
        out[at + uintp(1)] = uint8(aligned >> uint32(24))
        out[at + uintp(2)] = uint8(aligned >> uint32(16))
        out[at + uintp(3)] = uint8(aligned >> uint32(8))
        out[at + uintp(4)] = uint8(aligned)
        at += width + uintp(1)
    return at


@_compiled
def _put_bytes(out, at, data):
    for k in range(data.shape[0]):
        out[at + uintp(k)] = data[k]
    return at + uintp(data.shape[0])


@numba.njit(_SIGNATURE, cache=True, nogil=True)
def write_bodies(blocks, prefix, suffix, as_cbor, out, lengths):
    """Write `prefix` + integers + `suffix` per row of `blocks` as one msgpack array of bytes.

    `blocks` is `[num_blocks, block_size]` without negative ids. `out` must have room for the
    widest form and 4 bytes more; `lengths` `[num_blocks]` is filled. Returns the bytes used.
    """
    num_blocks = blocks.shape[0]
    out[0] = _MSGPACK_ARRAY32
    for k in range(4):
        out[1 + k] = (num_blocks >> (24 - 8 * k)) & 0xFF
    at = uintp(5)
    for row in range(num_blocks):
        start = at + uintp(3)  # behind this body's msgpack header
        at = _put_bytes(out, start, prefix)
        if as_cbor:
            at = _put_cbor_ints(out, at, blocks[row])
        else:
            at = _put_pickle_ints(out, at, blocks[row])
        at = _put_bytes(out, at, suffix)
        length = at - start
        out[start - uintp(3)] = _MSGPACK_BIN16
        out[start - uintp(2)] = uint8(length >> uintp(8))
        out[start - uintp(1)] = uint8(length)
        lengths[row] = length
    return at
