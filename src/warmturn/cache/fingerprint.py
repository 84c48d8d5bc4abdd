"""Whose keys and values these are: blocks of different models or layouts must never be mixed up.

A block's key in every tier is (fingerprint, block hash). The hash says which tokens, in which
scope and under which salt; the fingerprint says what computed them and how they are laid out.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import NewType

__all__ = ["Digest", "Fingerprint"]

Digest = NewType("Digest", bytes)
"""32 bytes that stand for one `Fingerprint`."""

LAYOUT_VERSION = 1
"""Raised whenever the meaning of a block's bytes changes without any field below changing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Everything that has to agree before one engine may read another one's blocks.

    Two engines with equal fingerprints compute the same bytes for the same block, but for
    rounding. Where a field does not apply it is None, and None differs from every value.
    """

    model: str
    """The name that is hashed into the chain; two names never share blocks."""
    weights: str
    """Identity of the weights: a digest of the files, not of their name."""
    kv_dtype: str
    """Such as `bfloat16` or `fp8_e4m3`."""
    kv_scales: str | None = None
    """Digest of the scales of quantised keys and values."""
    layout: str
    """Order of a block's axes, such as `layers,2,kv_heads,block_size,head_dim`."""
    packing: str | None = None
    """Where the processor decides how keys are packed inside a block: which way."""
    block_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    rope: str
    """Base and scaling of the rotary embedding."""
    hash_scheme: str
    """How block hashes are made: the same tokens have another name under another scheme."""
    tensor_parallel_rank: int = 0
    tensor_parallel_size: int = 1

    @property
    def digest(self) -> Digest:
        """Return the digest of all fields and of the layout's version."""
        text = json.dumps(asdict(self) | {"version": LAYOUT_VERSION}, sort_keys=True)
        return Digest(hashlib.sha256(text.encode()).digest())

    def describe(self) -> str:
        """Return one line for logs and errors."""
        rank = f", rank {self.tensor_parallel_rank} of {self.tensor_parallel_size}"
        return (
            f"{self.model} in {self.kv_dtype}, blocks of {self.block_size} tokens"
            f"{rank if self.tensor_parallel_size > 1 else ''}"
        )
