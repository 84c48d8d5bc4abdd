"""Serialise many blocks of tokens at once, as pickle or as canonical CBOR would.

The presets hash `head + parent digest + body`. Calling a serialiser per block costs several
times the hashing, so all bodies are written in one compiled pass (numba, which the `engine` and
`sim` extras bring) into one msgpack array of byte strings, which msgspec then cuts into Python
objects at C speed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt

from warmturn.types import TokenIds

__all__ = ["MAX_BODY_BYTES", "Bodies", "can_write_bodies", "token_bodies"]

MAX_BODY_BYTES = 60_000
"""Longest body written here: under 64 KiB, where pickle would begin a second frame."""

_MAX_INT_BYTES = 5
_SLACK_BYTES = 8  # the kernel writes past the end of the last integer
_split = msgspec.msgpack.Decoder(list[bytes]).decode


@dataclass(frozen=True, slots=True)
class Bodies:
    """Serialised blocks without head and parent."""

    data: list[bytes]
    """`[num_blocks]`"""
    lengths: npt.NDArray[np.int64]
    """`[num_blocks]`, in bytes."""


def can_write_bodies(block_size: int, num_fixed_bytes: int) -> bool:
    """Tell whether `token_bodies` can be called: numba is there and no body is too long."""
    longest = num_fixed_bytes + _MAX_INT_BYTES * block_size
    return longest <= MAX_BODY_BYTES and _kernel() is not None


def token_bodies(blocks: TokenIds, *, prefix: bytes, suffix: bytes, as_cbor: bool) -> Bodies:
    """Return `prefix` + integers + `suffix` for each row of `blocks`.

    `blocks` is `[num_blocks, block_size]`, int32, no negative ids; `can_write_bodies` holds.
    The first call of a process loads the kernel from numba's cache on disk, or compiles it.
    """
    write = _kernel()
    assert write is not None, "callers ask can_write_bodies() first"
    num_blocks, block_size = blocks.shape
    longest = len(prefix) + _MAX_INT_BYTES * block_size + len(suffix)
    out = np.empty(5 + num_blocks * (3 + longest) + _SLACK_BYTES, np.uint8)
    lengths = np.empty(num_blocks, np.int64)
    end = write(
        np.ascontiguousarray(blocks),
        np.frombuffer(prefix, np.uint8),
        np.frombuffer(suffix, np.uint8),
        as_cbor,
        out,
        lengths,
    )
    return Bodies(_split(out[:end].data), lengths)


@cache
def _kernel() -> Callable[..., int] | None:
    try:
        from warmturn.blocks.kernels import write_bodies  # noqa: PLC0415 - numba: heavy, optional
    except ImportError:
        return None
    compiled: Callable[..., int] = write_bodies
    return compiled
