"""Bytes of a sequence: a slope per token and a constant, over dtypes and parallelism.

    bytes(n) = growth * n                          layers that keep every token
             + sum over window layers of row * min(n, window)
             + state                               recurrent layers, whatever n

Once all windows are full this is `growth * n + constant`. Everything here is exact integers.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from warmturn.cost.geometry import HeadCache, Layer, LayerCache, ModelGeometry
from warmturn.cost.kv_dtype import KvDtype, float_bytes, kv_dtype_named
from warmturn.errors import InvalidInput

__all__ = ["KvCost", "Parallelism", "StateBytes"]

_INDEX_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How one copy of the model lies over GPUs."""

    tensor: int = 1
    pipeline: int = 1
    data_attention: int = 1
    """Groups of the tensor-parallel ranks that attend to different requests (DP attention)."""

    def __post_init__(self) -> None:
        """Raises `InvalidInput` unless the groups divide the ranks."""
        if min(self.tensor, self.pipeline, self.data_attention) < 1:
            raise InvalidInput(
                f"tensor {self.tensor}, pipeline {self.pipeline}, data-parallel attention "
                f"{self.data_attention}: each must be at least 1"
            )
        if self.tensor % self.data_attention:
            raise InvalidInput(
                f"{self.data_attention} data-parallel attention groups do not divide "
                f"{self.tensor} tensor-parallel ranks; use a divisor"
            )

    @property
    def num_gpus(self) -> int:
        """GPUs of one copy."""
        return self.tensor * self.pipeline

    @property
    def attention_ranks(self) -> int:
        """Ranks that share the heads of one request."""
        return self.tensor // self.data_attention


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Constant bytes of one sequence in recurrent layers."""

    conv: int
    recurrent: int

    @property
    def total(self) -> int:
        """Both."""
        return self.conv + self.recurrent


class KvCost:
    """What one model keeps, in bytes, in one cache format."""

    def __init__(
        self,
        geometry: ModelGeometry,
        *,
        kv_dtype: str = "bfloat16",
        parallelism: Parallelism | None = None,
        has_speculation: bool = False,
        conv_dtype: str = "bfloat16",
        recurrent_dtype: str = "float32",
    ) -> None:
        """State dtypes are the engine's choice; the defaults are vLLM's for most models.

        Raises `InvalidInput` for dtypes that are not known or do not fit the model.
        """
        self.geometry = geometry
        self.dtype: KvDtype = kv_dtype_named(kv_dtype)
        self.parallelism = parallelism or Parallelism()
        self._state_dtypes = float_bytes(conv_dtype), float_bytes(recurrent_dtype)
        extra = geometry.speculative_layers if has_speculation else ()
        self._layers = (*geometry.layers, *extra)
        self._rows = _Rows.of(self._layers, self.dtype, ranks=1)
        stages = _stages(self._layers, self.parallelism.pipeline)
        self._stage_rows = [
            _Rows.of(stage, self.dtype, ranks=self.parallelism.attention_ranks) for stage in stages
        ]
        self._stages = stages

    @property
    def bytes_per_token(self) -> int:
        """One more token of one long sequence, whole model, one copy: windows are full."""
        return self._rows.growth

    @property
    def short_bytes_per_token(self) -> int:
        """One more token while all windows still grow.

        Also what an allocator takes per token that gives window layers the full length.
        """
        return self._rows.short

    @property
    def bytes_per_token_per_gpu(self) -> int:
        """One more token of one long sequence on the fullest GPU that holds it.

        Heads divide over ranks until one is left, and are then replicated; a latent has no heads
        and lies on every rank. Pipeline stages hold their own layers only.
        """
        return max(rows.growth for rows in self._stage_rows)

    @property
    def num_token_copies(self) -> float:
        """How often one token's bytes lie on the GPUs that share it; 1 where nothing repeats."""
        if not self._rows.growth:
            return 1.0
        ranks = self.parallelism.attention_ranks
        return ranks * sum(rows.growth for rows in self._stage_rows) / self._rows.growth

    @property
    def window_bytes(self) -> int:
        """Constant part of one sequence once all windows are full."""
        return sum(row * window * num for (row, window), num in self._rows.windows.items())

    @property
    def state(self) -> StateBytes:
        """Constant part of one sequence in recurrent layers, whole model."""
        return _state(self._layers, self._state_dtypes)

    def kv_bytes_at(self, num_tokens: int) -> int:
        """Return the K/V bytes of one sequence of that length, whole model, states left out."""
        return self._rows.at(num_tokens)

    def bytes_at(self, num_tokens: int) -> int:
        """Return all bytes of one sequence of that length, whole model, states included."""
        return self._rows.at(num_tokens) + self.state.total

    def bytes_at_per_gpu(self, num_tokens: int) -> int:
        """Return the same on the fullest GPU that holds the sequence."""
        ranks = self.parallelism.attention_ranks
        return max(
            rows.at(num_tokens) + -(-_state(stage, self._state_dtypes).total // ranks)
            for rows, stage in zip(self._stage_rows, self._stages, strict=True)
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Bytes per token of some layers, by how long a token is kept."""

    growth: int
    windows: Counter[tuple[int, int]]
    """(row bytes, window tokens) → number of layers."""

    @classmethod
    def of(cls, layers: Iterable[Layer], dtype: KvDtype, *, ranks: int) -> "_Rows":
        growth, windows = 0, Counter[tuple[int, int]]()
        for layer in layers:
            if layer.cache is None:
                continue
            row = _row_bytes(layer.cache, dtype, ranks)
            if layer.cache.window_tokens is None:
                growth += row
            else:
                windows[row, layer.cache.window_tokens] += 1
        return cls(growth, windows)

    @property
    def short(self) -> int:
        return self.growth + sum(row * num for (row, _), num in self.windows.items())

    def at(self, num_tokens: int) -> int:
        kept = sum(
            row * min(num_tokens, window) * num for (row, window), num in self.windows.items()
        )
        return self.growth * num_tokens + kept


def _row_bytes(cache: LayerCache, dtype: KvDtype, ranks: int) -> int:
    """Return the bytes of one token in one layer on one of `ranks` GPUs."""
    if isinstance(cache, HeadCache):
        heads = -(-cache.num_kv_heads // ranks)
        return heads * (dtype.vector_bytes(cache.key_dim) + dtype.vector_bytes(cache.value_dim))
    index = 0 if cache.index_dim is None else _index_bytes(cache.index_dim)
    return dtype.latent_bytes(cache.latent_dim, cache.rope_dim) + index


def _index_bytes(index_dim: int) -> int:
    """An indexer's key is fp8 with a float32 scale per 128 values, whatever the cache's dtype."""
    return index_dim + -(-index_dim // _INDEX_BLOCK) * 4


def _state(layers: Iterable[Layer], dtypes: tuple[int, int]) -> StateBytes:
    states = [layer.state for layer in layers if layer.state is not None]
    return StateBytes(
        sum(state.conv_elements for state in states) * dtypes[0],
        sum(state.recurrent_elements for state in states) * dtypes[1],
    )


def _stages(layers: tuple[Layer, ...], num_stages: int) -> list[tuple[Layer, ...]]:
    """Cut the layers into runs of equal length, the first ones longer where it does not divide."""
    if num_stages > len(layers):
        raise InvalidInput(f"{num_stages} pipeline stages for {len(layers)} layers; use fewer")
    size, longer = divmod(len(layers), num_stages)
    starts = [0]
    for stage in range(num_stages):
        starts.append(starts[-1] + size + (stage < longer))
    return [layers[a:b] for a, b in itertools.pairwise(starts)]
