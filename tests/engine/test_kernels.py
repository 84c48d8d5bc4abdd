import numpy as np
import pytest
import torch
from torch.nn import functional

from warmturn.engine.kernels import NUM_SPLITS, _exp2_parts, compile_decode_kernel

NUM_LAYERS, LAYER = 2, 1


def attend(kernel, pool, queries, tables, lengths):
    partial_shape = (*queries.shape[:2], NUM_SPLITS, queries.shape[2], queries.shape[3] + 2)
    out = np.empty_like(queries)
    partial = np.empty(partial_shape, np.float32)
    kernel(pool, LAYER, queries, tables, lengths, partial, out)
    return out


def scattered(lengths, *, kv_heads, block_size, head_dim):
    """A random pool and block tables in random order, padded with slot 0."""
    rng = np.random.default_rng(4)
    counts = [-(-length // block_size) for length in lengths]
    order = rng.permutation(sum(counts) + 1)[1:].astype(np.int32)
    tables = np.zeros((len(lengths), max(counts)), np.int32)
    for row, count, stop in zip(tables, counts, np.cumsum(counts), strict=True):
        row[:count] = order[stop - count : stop]
    shape = (sum(counts) + 1, NUM_LAYERS, 2, kv_heads, block_size, head_dim)
    return torch.from_numpy(rng.normal(size=shape).astype(np.float32)), tables


@pytest.mark.parametrize("is_bfloat16", [False, True])
@pytest.mark.parametrize(("group", "head_dim", "block_size"), [(3, 8, 4), (1, 16, 8)])
def test_attention_on_pages_equals_attention_on_whole_sequences(
    group, head_dim, block_size, is_bfloat16
):
    lengths = np.array([1, 3, 4, 5, 17, 70], np.int32)
    pool, tables = scattered(lengths, kv_heads=2, block_size=block_size, head_dim=head_dim)
    pool = pool.bfloat16() if is_bfloat16 else pool
    raw = pool.view(torch.uint16).numpy() if is_bfloat16 else pool.numpy()
    queries = np.random.default_rng(5).normal(size=(6, 2, group, head_dim)).astype(np.float32)
    kernel = compile_decode_kernel(
        group=group, head_dim=head_dim, block_size=block_size, is_bfloat16=is_bfloat16
    )
    out = attend(kernel, raw, queries, tables, lengths)
    for row, length in enumerate(lengths):
        pages = pool[torch.from_numpy(tables[row]).long(), LAYER].float()
        k, v = pages.permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :length]
        expected = functional.scaled_dot_product_attention(torch.from_numpy(queries[row]), k, v)
        np.testing.assert_allclose(out[row], expected.numpy(), atol=2e-6)
    for row in range(6):  # a sequence's bits do not depend on its neighbours
        alone = attend(
            kernel, raw, queries[row : row + 1], tables[row : row + 1], lengths[row : row + 1]
        )
        np.testing.assert_array_equal(alone[0], out[row])


def test_scores_far_apart_neither_overflow_nor_lose_the_largest():
    kernel = compile_decode_kernel(group=3, head_dim=8, block_size=4, is_bfloat16=False)
    pool, tables = scattered([40], kv_heads=2, block_size=4, head_dim=8)
    raw = pool.numpy() * 100
    queries = np.full((1, 2, 3, 8), 30.0, np.float32)
    out = attend(kernel, raw, queries, tables, np.array([40], np.int32))
    assert np.isfinite(out).all()
    keys = raw[tables[0], LAYER, 0].transpose(1, 0, 2, 3).reshape(2, 40, 8)
    values = raw[tables[0], LAYER, 1].transpose(1, 0, 2, 3).reshape(2, 40, 8)
    for head in range(2):
        best = (keys[head] @ queries[0, head, 0]).argmax()
        np.testing.assert_allclose(out[0, head, 0], values[head, best], rtol=1e-4)


def test_two_to_a_power_is_exact_to_float32():
    exponents = np.linspace(-130, 0, 4001, dtype=np.float32)
    parts = [_exp2_parts.py_func(x) for x in exponents]
    mantissas = np.array([mantissa for mantissa, _ in parts], np.float32)
    powers = np.array([bits for _, bits in parts], np.int32).view(np.float32)
    expected = 2.0 ** np.maximum(exponents.astype(np.float64), -126)
    np.testing.assert_allclose((mantissas * powers).astype(np.float64), expected, rtol=4e-7)
