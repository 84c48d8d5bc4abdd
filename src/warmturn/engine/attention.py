"""Attention of one step over paged keys and values.

All queries that stand alone (a decode, a sequence's last token) go through the decode kernel
together; every chunk of several tokens attends to its past (gathered, no mask) and to itself
(causal), merged by log-sum-exp. Where numba or torch's private operation is absent, and on
CUDA, gathering and torch's public attention give the same result.
"""

import importlib.util
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warmturn.engine.batch import Batch, Chunk, Singles
from warmturn.engine.model_config import ModelConfig
from warmturn.engine.paged_kv import PagedKv

__all__ = ["Attention"]

SERIAL_TOKENS = 1024
"""Up to so many cached tokens the kernel runs on one thread: about 0.1 ms per layer, which is
little beside waking the other threads when other programs keep their cores busy."""


class Attention:
    """Attends over one pool; `use_kernels=False` takes the plain path everywhere."""

    def __init__(
        self, kv: PagedKv, config: ModelConfig, *, num_threads: int, use_kernels: bool = True
    ) -> None:
        self.kv = kv
        self.config = config
        use_kernels = use_kernels and kv.tensor.device.type == "cpu"
        self._flash = _flash() if use_kernels else None
        self._decode = _decode_kernel(kv, config, num_threads) if use_kernels else None

    def batch(self, layer: int, queries: Tensor, keys_values: Tensor, batch: Batch) -> Tensor:
        """Return `[num_tokens, num_heads, head_dim]` in the queries' dtype.

        `queries` has that shape; `keys_values` `[num_tokens, 2, kv_heads, head_dim]` are the
        new tokens' own, already written to their pages.
        """
        num_singles = len(batch.singles)
        if not batch.chunks:
            return self.singles(layer, queries, batch.singles)
        out = torch.empty_like(queries)
        if num_singles:
            out[:num_singles] = self.singles(layer, queries[:num_singles], batch.singles)
        for chunk in batch.chunks:
            rows = slice(chunk.start, chunk.stop)
            out[rows] = self._chunk(layer, queries[rows], keys_values[rows], chunk)
        return out

    def singles(self, layer: int, queries: Tensor, singles: Singles) -> Tensor:
        """Attend each of `queries` `[num_queries, num_heads, head_dim]` to its sequence."""
        if self._decode is not None:
            return self._decode(layer, queries, singles)
        attended = []
        for query, table, length in zip(
            queries, singles.tables.long(), singles.lengths.tolist(), strict=True
        ):
            k, v = self.kv.gather(layer, table[: -(-length // self.kv.block_size)], length)
            q = query[None, :, None]  # [1, heads, 1, head_dim]
            attended.append(_attend(q, k[None], v[None])[0, :, 0])
        return torch.stack(attended)

    def _chunk(self, layer: int, queries: Tensor, keys_values: Tensor, chunk: Chunk) -> Tensor:
        q = queries.transpose(0, 1)[None]  # [1, heads, num_new, head_dim]
        k, v = keys_values.permute(1, 2, 0, 3)[:, None]  # [1, kv_heads, num_new, head_dim]
        if not chunk.position:
            return _tokens_first(_attend(q, k, v, is_causal=True))
        past_k, past_v = self.kv.gather(layer, chunk.past_blocks, chunk.position)[:, None]
        if self._flash is None:
            k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
            # torch's own causal mask is aligned to the first key: wrong once there is a past.
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
            return _tokens_first(_attend(q, k, v, attn_mask=mask.tril(chunk.position)))
        heads = self.config.num_heads // self.config.num_kv_heads
        present, present_lse = self._flash(
            q, k.repeat_interleave(heads, 1), v.repeat_interleave(heads, 1), is_causal=True
        )
        # Without a mask all query heads of a group can stand in one long row of queries.
        folded = q.reshape(1, self.config.num_kv_heads, -1, self.config.head_dim)
        past, past_lse = self._flash(folded, past_k, past_v)
        share = torch.sigmoid(past_lse.reshape(present_lse.shape) - present_lse)[..., None]
        # In float32: a merge in bf16 makes the error ten times larger.
        merged = torch.lerp(present.float(), past.reshape(present.shape).float(), share)
        return _tokens_first(merged)


class _PagedDecode:
    """The decode kernel over one pool, with its scratch memory."""

    def __init__(self, kv: PagedKv, config: ModelConfig, num_threads: int) -> None:
        import numba  # noqa: PLC0415 - loading takes half a second, and it may be absent

        from warmturn.engine import kernels  # noqa: PLC0415 - needs numba

        is_bfloat16 = kv.tensor.dtype == torch.bfloat16
        self._pool = (kv.tensor.view(torch.uint16) if is_bfloat16 else kv.tensor).numpy()
        self._group = config.num_heads // config.num_kv_heads
        self._num_threads = min(num_threads, _numba_threads(numba))
        self._set_num_threads = numba.set_num_threads
        self._num_splits = kernels.NUM_SPLITS
        self._kernel = kernels.compile_decode_kernel(
            group=self._group,
            head_dim=config.head_dim,
            block_size=kv.block_size,
            is_bfloat16=is_bfloat16,
        )

        self._compile(config)

    def __call__(self, layer: int, queries: Tensor, singles: Singles) -> Tensor:
        num_queries, num_heads, head_dim = queries.shape
        grouped = (num_queries, num_heads // self._group, self._group, head_dim)
        out = np.empty(grouped, np.float32)
        partial = np.empty((*grouped[:2], self._num_splits, self._group, head_dim + 2), np.float32)
        is_short = singles.num_cached_tokens <= SERIAL_TOKENS
        self._set_num_threads(1 if is_short else self._num_threads)
        self._kernel(
            self._pool,
            layer,
            queries.float().contiguous().numpy().reshape(grouped),
            singles.tables.numpy(),
            singles.lengths.numpy(),
            partial,
            out,
        )
        return torch.from_numpy(out).view(queries.shape).to(queries.dtype)

    def _compile(self, config: ModelConfig) -> None:
        """Run once on one token, so that no request waits for the compiler."""
        zero, one = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
        single = Singles(rows=zero[0].long(), tables=zero, lengths=one, num_cached_tokens=1)
        self(0, torch.zeros(1, config.num_heads, config.head_dim), single)


def _decode_kernel(kv: PagedKv, config: ModelConfig, num_threads: int) -> _PagedDecode | None:
    if importlib.util.find_spec("numba") is None or kv.block_size % 4:
        return None
    return _PagedDecode(kv, config, num_threads)


def _numba_threads(numba: Any) -> int:
    """Return how many threads numba has; asking for more is an error."""
    return int(numba.config.NUMBA_NUM_THREADS)


def _flash() -> Any:
    """Return torch's CPU flash attention, which also gives the log-sum-exp; None if absent."""
    return getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


def _attend(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **how)


def _tokens_first(heads_first: Tensor) -> Tensor:
    """`[1, heads, tokens, head_dim]` to `[tokens, heads, head_dim]`."""
    return heads_first[0].transpose(0, 1)
