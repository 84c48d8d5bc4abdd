"""Decode attention on pages in place, compiled by numba.

For one new token per sequence, gathering pages costs more than the attention itself, so this
kernel reads them where they are. bf16 pages come in as uint16: shifted left by 16 bits they
are float32 numbers. All sums are float32, weights are powers of two (log2(e) is multiplied
into the query), and results do not depend on which other sequences are in the batch.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["NUM_SPLITS", "DecodeKernel", "compile_decode_kernel"]

NUM_SPLITS = 4
"""Parts every sequence is cut into, each one task. Fixed, so that a sequence's result never
depends on its neighbours in the batch; four feed two cores at three key/value heads."""

Array: TypeAlias = npt.NDArray[Any]
DecodeKernel: TypeAlias = Callable[[Array, int, Array, Array, Array, Array, Array], None]
Function = TypeVar("Function", bound=Callable[..., Any])

LOWEST = np.float32(-1e30)
"""Score of a token that is not there; finite, so that fast-math may be used."""


def _inlined(function: Function) -> Function:
    """Compile a part of the kernel; its sizes arrive as constants, so that loops unroll."""
    return cast("Function", numba.njit(inline="always", fastmath=True)(function))


@_inlined
def _exp2_parts(x: Any) -> Any:
    """Return `(mantissa, exponent)` of 2**x for x <= 0; below -126 it counts as 2**-126.

    In two parts so that the loop over tokens has no call and vectorises. The polynomial is a
    least-squares fit on [-0.5, 0.5] with a relative error of 1e-7.
    """
    x = max(x, np.float32(-126.0))
    whole = np.floor(x + np.float32(0.5))
    part = x - whole
    y = np.float32(1.3266970636e-3)
    y = y * part + np.float32(9.6754599363e-3)
    y = y * part + np.float32(5.5507425219e-2)
    y = y * part + np.float32(2.4022121727e-1)
    y = y * part + np.float32(6.9314694405e-1)
    return y * part + np.float32(1.0), (np.int32(whole) + np.int32(127)) << np.int32(23)


@_inlined
def _widen(page: Any, bits: Any, block_size: int, head_dim: int) -> None:
    """Turn a bf16 page into the bits of float32 numbers."""
    for t in range(block_size):
        for d in range(head_dim):
            bits[t, d] = np.uint32(page[t, d]) << np.uint32(16)


@_inlined
def _score(
    query: Any, page: Any, scores: Any, filled: int, group: int, block_size: int, head_dim: int
) -> None:
    """Write query . key for every token of a page; four tokens share one read of the query."""
    for t in range(0, block_size, 4):
        for g in range(group):
            dot0 = dot1 = dot2 = dot3 = np.float32(0.0)
            for d in range(head_dim):
                dot0 += query[g, d] * page[t, d]
                dot1 += query[g, d] * page[t + 1, d]
                dot2 += query[g, d] * page[t + 2, d]
                dot3 += query[g, d] * page[t + 3, d]
            scores[g, t] = dot0
            scores[g, t + 1] = dot1
            scores[g, t + 2] = dot2
            scores[g, t + 3] = dot3
    for g in range(group):
        for t in range(filled, block_size):
            scores[g, t] = LOWEST


@_inlined
def _weigh(
    scores: Any,
    exponents: Any,
    powers: Any,
    total: Any,
    maxima: Any,
    weights: Any,
    group: int,
    block_size: int,
    head_dim: int,
) -> None:
    """Turn scores into weights against the running maximum; shrink what was summed before."""
    for g in range(group):
        highest = maxima[g]
        for t in range(block_size):
            highest = max(highest, scores[g, t])
        if highest > maxima[g]:
            shrink = np.float32(math.exp((maxima[g] - highest) * np.float32(math.log(2.0))))
            weights[g] *= shrink
            for d in range(head_dim):
                total[g, d] *= shrink
            maxima[g] = highest
        for t in range(block_size):
            scores[g, t], exponents[t] = _exp2_parts(scores[g, t] - highest)
        added = np.float32(0.0)
        for t in range(block_size):
            scores[g, t] *= powers[t]
            added += scores[g, t]
        weights[g] += added


@_inlined
def _accumulate(
    scores: Any, page: Any, total: Any, group: int, block_size: int, head_dim: int
) -> None:
    """Add weight * value of every token; four tokens share one write of the sum."""
    for t in range(0, block_size, 4):
        for g in range(group):
            w0, w1, w2, w3 = scores[g, t], scores[g, t + 1], scores[g, t + 2], scores[g, t + 3]
            for d in range(head_dim):
                total[g, d] += (
                    w0 * page[t, d]
                    + w1 * page[t + 1, d]
                    + w2 * page[t + 2, d]
                    + w3 * page[t + 3, d]
                )


@_inlined
def _merge(partial: Any, out: Any, group: int, head_dim: int) -> None:
    """Combine the splits of one sequence and head into `out` `[group, head_dim]`."""
    for g in range(group):
        highest = LOWEST
        for split in range(NUM_SPLITS):
            highest = max(highest, partial[split, g, head_dim])
        weight = np.float32(0.0)
        for d in range(head_dim):
            out[g, d] = np.float32(0.0)
        for split in range(NUM_SPLITS):
            below = (partial[split, g, head_dim] - highest) * np.float32(math.log(2.0))
            share = np.float32(math.exp(below))
            weight += share * partial[split, g, head_dim + 1]
            for d in range(head_dim):
                out[g, d] += share * partial[split, g, d]
        for d in range(head_dim):
            out[g, d] /= weight


@functools.cache
def compile_decode_kernel(  # noqa: C901 - one loop nest, sizes compiled in
    *, group: int, head_dim: int, block_size: int, is_bfloat16: bool
) -> DecodeKernel:
    """Return `attend(pool, layer, queries, tables, lengths, partial, out)`.

    Geometry is compiled in, so that the inner loops unroll and vectorise. Arguments:
    `pool` `[num_blocks, layers, 2, kv_heads, block, head_dim]` float32, or uint16 for bf16;
    `queries` and `out` `[num_seqs, kv_heads, group, head_dim]` float32;
    `tables` `[num_seqs, max_blocks]` int32, `lengths` `[num_seqs]` int32 in tokens, >= 1;
    `partial` `[num_seqs, kv_heads, NUM_SPLITS, group, head_dim + 2]` float32 scratch: the
    unnormalised sum, the running maximum and the sum of weights of each split.
    The block size must be a multiple of four. Compiling takes seconds the first time on a
    machine; later processes read numba's cache on disk.
    """
    assert block_size % 4 == 0
    scale = np.float32(1.0 / (math.sqrt(head_dim) * math.log(2.0)))

    def attend(
        pool: Any, layer: int, queries: Any, tables: Any, lengths: Any, partial: Any, out: Any
    ) -> None:
        num_seqs, kv_heads = queries.shape[0], queries.shape[1]
        for task in numba.prange(num_seqs * kv_heads * NUM_SPLITS):
            seq, head = task // (kv_heads * NUM_SPLITS), task // NUM_SPLITS % kv_heads
            split = task % NUM_SPLITS
            num_blocks = (lengths[seq] + block_size - 1) // block_size
            query = np.empty((group, head_dim), np.float32)
            for g in range(group):
                for d in range(head_dim):
                    query[g, d] = queries[seq, head, g, d] * scale
            total = np.zeros((group, head_dim), np.float32)
            weights = np.zeros(group, np.float32)
            maxima = np.full(group, LOWEST)
            scores = np.empty((group, block_size), np.float32)
            exponents = np.empty(block_size, np.int32)
            powers = exponents.view(np.float32)
            bits = np.empty((block_size, head_dim), np.uint32)
            page = bits.view(np.float32)
            first = num_blocks * split // NUM_SPLITS
            for j in range(first, num_blocks * (split + 1) // NUM_SPLITS):
                filled = min(block_size, lengths[seq] - j * block_size)
                slot = tables[seq, j]
                if is_bfloat16:
                    _widen(pool[slot, layer, 0, head], bits, block_size, head_dim)
                else:
                    page = pool[slot, layer, 0, head]
                _score(query, page, scores, filled, group, block_size, head_dim)
                _weigh(
                    scores, exponents, powers, total, maxima, weights, group, block_size, head_dim
                )
                if is_bfloat16:
                    _widen(pool[slot, layer, 1, head], bits, block_size, head_dim)
                else:
                    page = pool[slot, layer, 1, head]
                _accumulate(scores, page, total, group, block_size, head_dim)
            for g in range(group):
                partial[seq, head, split, g, head_dim] = maxima[g]
                partial[seq, head, split, g, head_dim + 1] = weights[g]
                for d in range(head_dim):
                    partial[seq, head, split, g, d] = total[g, d]
        for row in range(num_seqs * kv_heads):
            seq, head = row // kv_heads, row % kv_heads
            _merge(partial[seq, head], out[seq, head], group, head_dim)

    compiled = numba.njit(parallel=True, fastmath=True, nogil=True, cache=True)(attend)
    return cast("DecodeKernel", compiled)
