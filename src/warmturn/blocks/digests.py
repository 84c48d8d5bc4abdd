"""The inner loop of every scheme: SHA-256 over head + parent + body, block after block."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _hashlib import HASH

__all__ = ["hash_chain", "sha256"]

sha256 = hashlib.sha256
_copy = type(sha256()).copy


def hash_chain(parent: bytes, heads: "Iterable[HASH]", bodies: Sequence[bytes]) -> list[bytes]:
    """Return one digest per body, each the parent of the next one.

    `heads` are SHA-256 states that have taken in what stands before the parent, one per body
    or more; they are copied. That costs less than a new state and a joined message per block.
    """
    digests: list[bytes] = []
    append = digests.append
    for state, body in zip(map(_copy, heads), bodies, strict=False):
        state.update(parent)
        state.update(body)
        parent = state.digest()
        append(parent)
    return digests
