"""One block as every store outside this process keeps it: a header, then its bytes.

    magic  version  payload_bytes  fingerprint  block hash  checksum  header check
    4 B    4 B      8 B            32 B         32 B        8 B       8 B            little-endian

The checksum is xxh3 over the payload, begun with a seed made from fingerprint and hash: bytes
that are whole, but another block's, do not pass. It guards against accidents, not against an
attacker who can write to the store.
"""

import struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from warmturn.cache.fingerprint import Digest
from warmturn.types import BlockHash

__all__ = [
    "HEADER_BYTES",
    "Bytes",
    "block_checksum",
    "record_checksum",
    "record_header",
    "record_problem",
]

Bytes: TypeAlias = npt.NDArray[np.uint8]
"""One block's bytes, `[block_bytes]`, contiguous."""

MAGIC = b"WTKV"
VERSION = 1
_HEADER = struct.Struct("<4sIQ32s32sQ")
_CHECK = struct.Struct("<Q")
HEADER_BYTES = _HEADER.size + _CHECK.size


def block_checksum(payload: Bytes | memoryview | bytes, key: BlockHash, owner: Digest) -> int:
    """Return the checksum of one block's bytes under its full key; about 0.1 ms per MB."""
    seed = int.from_bytes(key[:8], "little") ^ int.from_bytes(owner[:8], "little")
    data = payload.data if isinstance(payload, np.ndarray) else payload
    return xxhash.xxh3_64_intdigest(data, seed=seed)


def record_header(key: BlockHash, owner: Digest, *, payload_bytes: int, checksum: int) -> bytes:
    """Return the header that goes before the payload."""
    head = _HEADER.pack(MAGIC, VERSION, payload_bytes, owner, key, checksum)
    return head + _CHECK.pack(xxhash.xxh3_64_intdigest(head))


def record_checksum(header: bytes | memoryview) -> int:
    """Return the payload's checksum out of a header that `record_problem` found right."""
    checksum: int = _HEADER.unpack_from(header)[5]
    return checksum


def record_problem(
    header: bytes | memoryview,
    payload: Bytes | memoryview | bytes,
    key: BlockHash,
    owner: Digest,
    *,
    verify: bool = True,
) -> str | None:
    """Return why a record is not the block `key` of `owner`, None when it is.

    `verify` off skips the checksum over the payload, for comparison only.
    """
    if len(header) != HEADER_BYTES:
        return f"header of {len(header)} bytes"
    magic, version, payload_bytes, its_owner, its_key, checksum = _HEADER.unpack_from(header)
    if (
        xxhash.xxh3_64_intdigest(header[: _HEADER.size])
        != _CHECK.unpack_from(header, _HEADER.size)[0]
    ):
        return "header does not match its checksum"
    if (magic, version) != (MAGIC, VERSION):
        return f"form {magic!r} version {version}"
    if its_owner != owner or its_key != key:
        return "another model's or another block's"
    if payload_bytes != len(payload):
        return f"{len(payload)} bytes instead of {payload_bytes}"
    if verify and block_checksum(payload, key, owner) != checksum:
        return "bytes do not match their checksum"
    return None
