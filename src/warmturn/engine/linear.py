"""Linear layers: weights packed once for oneDNN where that is faster, plain ones elsewhere."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Linear", "cpu_multiplies_bfloat16"]

PACKED_FOR_TOKENS = 512
"""The number of rows oneDNN packs for. One row would be natural for decoding, but the form
packed for many rows was as quick at one row and up to 1.4 times as quick at prefill."""


_pack: Any = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)
_multiply: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""Private operations of torch, without a promise to stay: None where they are gone."""


class Linear:
    """`x @ weight.T + bias`, callable on `[num_tokens, in_features]`.

    Packed weights are a reordered copy, so the given one can be freed. Packing uses private
    operations of torch; where they are missing the public one gives the same result.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, pack: bool = True) -> None:
        """`weight` is `[out_features, in_features]`, `bias` `[out_features]`."""
        self.bias = bias
        self.is_packed = pack and _packing_pays(weight)
        with torch.no_grad():
            self.weight = _pack(weight, PACKED_FOR_TOKENS) if self.is_packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        """Return `[num_tokens, out_features]`."""
        if not self.is_packed:
            return functional.linear(x, self.weight, self.bias)
        y: Tensor = _multiply(x, self.weight, self.bias, "none", [], "")
        return y

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return `residual + self(x)`; the packed form adds while it writes."""
        if not self.is_packed:
            return residual + functional.linear(x, self.weight, self.bias)
        y: Tensor = _multiply.binary(x, residual, self.weight, self.bias, "add")
        return y


def _packing_pays(weight: Tensor) -> bool:
    """Decide by what the CPU is, not by a measurement, so that two runs give equal bits.

    bf16: packed saves a fifth to a half at one row wherever oneDNN has bf16 instructions.
    float32: torch multiplies with MKL, which is at its best on Intel only; on an AMD Zen 4
    oneDNN took 19 ms where MKL took 35 (1 row), 17 for 50 (4 rows), 540 for 790 (512 rows).
    On Intel the packed form was slower at one row (31 ms against 20).
    """
    if weight.device.type != "cpu" or _pack is None or _multiply is None:
        return False
    if weight.dtype == torch.bfloat16:
        return cpu_multiplies_bfloat16()
    return weight.dtype == torch.float32 and cpu_capabilities().get("cpu_name", "").startswith(
        "AMD"
    )


def cpu_capabilities() -> dict[str, Any]:
    """Return what torch knows of this CPU; empty where torch is too old to tell."""
    get = getattr(torch.cpu, "get_capabilities", None)
    return dict(get()) if get else {}


def cpu_multiplies_bfloat16() -> bool:
    """Tell whether the CPU has instructions that multiply bf16; without them it is emulated."""
    flags = cpu_capabilities()
    return bool(flags.get("avx512_bf16") or flags.get("amx_bf16") or flags.get("bf16"))
