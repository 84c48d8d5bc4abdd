import pytest
import torch
from torch.nn import functional

from warmturn.engine.linear import Linear, cpu_multiplies_bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 3, 70])
def test_packed_and_plain_layers_give_the_same(dtype, biased, num_tokens, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(24, 16, generator=generator).to(dtype)
    bias = torch.randn(24, generator=generator).to(dtype) if biased else None
    x = torch.randn(num_tokens, 16, generator=generator).to(dtype)
    residual = torch.randn(num_tokens, 24, generator=generator).to(dtype)
    expected = functional.linear(x.double(), weight.double(), bias.double() if biased else None)
    tolerance = {"atol": 1e-5, "rtol": 0} if dtype == torch.float32 else {"atol": 0.1, "rtol": 0}
    can_pack = dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    for pays in (True, False) if can_pack else (False,):
        monkeypatch.setattr("warmturn.engine.linear._packing_pays", lambda _, pays=pays: pays)
        layer = Linear(weight, bias)
        assert layer.is_packed == pays
        with torch.inference_mode():
            y, added = layer(x), layer.add_to(residual, x)
        torch.testing.assert_close(y.double(), expected, **tolerance)
        torch.testing.assert_close(added.double(), expected + residual.double(), **tolerance)


@pytest.mark.parametrize(
    ("capabilities", "multiplies"),
    [
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
        ({"avx2": True}, False),
        ({}, False),
    ],
)
def test_only_instructions_for_bfloat16_count(capabilities, multiplies, monkeypatch):
    monkeypatch.setattr("warmturn.engine.linear.cpu_capabilities", lambda: capabilities)
    assert cpu_multiplies_bfloat16() == multiplies


@pytest.mark.parametrize(
    ("cpu_name", "dtype", "packs"),
    [
        ("AMD EPYC", torch.float32, True),
        ("Intel Xeon", torch.float32, False),
        ("AMD EPYC", torch.float16, False),
    ],
)
def test_float32_is_packed_only_where_mkl_is_slow(cpu_name, dtype, packs, monkeypatch):
    monkeypatch.setattr("warmturn.engine.linear.cpu_capabilities", lambda: {"cpu_name": cpu_name})
    assert Linear(torch.ones(8, 8, dtype=dtype), None).is_packed == packs
