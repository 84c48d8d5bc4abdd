"""How many bytes keys and values take in each cache format, scales included.

A cache stores vectors: one key and one value per head, or one latent per token. A quantised
format adds scales per vector or per block of elements; a format without them (`fp8`: one scale
per tensor) adds nothing that grows.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from warmturn.errors import InvalidInput

__all__ = ["FLOAT_BYTES", "KV_DTYPES", "KvDtype", "float_bytes", "kv_dtype_named"]

Kind: TypeAlias = Literal["plain", "block", "head", "packed-mla"]

FLOAT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1}
"""What a state of a recurrent layer, or a weight, can be kept in."""

_ALIASES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "f16": "float16"}
_ALIASES |= {"fp32": "float32", "float": "float32", "f32": "float32"}
_ALIASES |= {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}


@dataclass(frozen=True, slots=True)
class KvDtype:
    """One cache format. Rules per kind are in `vector_bytes`."""

    name: str
    kind: Kind
    element_bytes: int = 1
    """Of plain elements; of those with a scale per head."""
    block_elements: int = 0
    """Elements that share a scale, in the `block` kind."""
    block_bytes: int = 0
    """Of one such block with its scale."""

    def vector_bytes(self, num_elements: int) -> int:
        """Return the bytes of one stored vector; blocks never reach over its end."""
        match self.kind:
            case "plain":
                return num_elements * self.element_bytes
            case "head":
                return num_elements * self.element_bytes + 4  # one float32 scale
            case "block":
                return -(-num_elements // self.block_elements) * self.block_bytes
            case "packed-mla":
                raise InvalidInput(
                    f"{self.name} packs the latent of MLA, and this model keeps keys and values "
                    "per head; use fp8"
                )

    def latent_bytes(self, latent_dim: int, rope_dim: int) -> int:
        """Return the bytes of one token's latent and rope part in one layer.

        They lie in one vector, but packed: the latent in fp8 with a float32 scale per 128
        values, the rope part in bfloat16 [SGLang and vLLM, `fp8_ds_mla`].
        """
        if self.kind == "packed-mla":
            return latent_dim + -(-latent_dim // 128) * 4 + rope_dim * 2
        return self.vector_bytes(latent_dim + rope_dim)


KV_DTYPES: dict[str, KvDtype] = {
    dtype.name: dtype
    for dtype in (
        KvDtype("bfloat16", "plain", 2),
        KvDtype("float16", "plain", 2),
        KvDtype("float32", "plain", 4),
        KvDtype("fp8", "plain", 1),
        KvDtype("int8", "plain", 1),
        KvDtype("fp8_per_token_head", "head", 1),
        KvDtype("int8_per_token_head", "head", 1),
        KvDtype("fp8_ds_mla", "packed-mla"),
        KvDtype("q8_0", "block", block_elements=32, block_bytes=34),
        KvDtype("q5_1", "block", block_elements=32, block_bytes=24),
        KvDtype("q5_0", "block", block_elements=32, block_bytes=22),
        KvDtype("q4_1", "block", block_elements=32, block_bytes=20),
        KvDtype("q4_0", "block", block_elements=32, block_bytes=18),
        KvDtype("iq4_nl", "block", block_elements=32, block_bytes=18),
        KvDtype("nvfp4", "block", block_elements=16, block_bytes=9),
        KvDtype("mxfp8", "block", block_elements=32, block_bytes=33),
        KvDtype("mxfp4", "block", block_elements=32, block_bytes=17),
    )
}
"""`fp8` and `int8` have one scale per tensor. Block sizes: ggml's (q, iq), NVIDIA's (nvfp4), OCP's
(mx)."""


def kv_dtype_named(name: str) -> KvDtype:
    """Return the format, common other spellings included. Raises `InvalidInput` where unknown.

    Never guessed: a planner that drops what it does not know promises memory that is not there.
    """
    known = KV_DTYPES.get(_ALIASES.get(name.lower(), name.lower()))
    if known is None:
        raise InvalidInput(
            f"the K/V dtype {name[:40]!r} is not known, so its bytes per element and its scales are "
            f"not either; known are {', '.join(KV_DTYPES)}"
        )
    return known


def float_bytes(name: str) -> int:
    """Return bytes per element of a plain number format. Raises `InvalidInput` where unknown."""
    size = FLOAT_BYTES.get(_ALIASES.get(name.lower(), name.lower()))
    if size is None:
        raise InvalidInput(
            f"the dtype {name[:40]!r} is not known; known are {', '.join(FLOAT_BYTES)}"
        )
    return size
