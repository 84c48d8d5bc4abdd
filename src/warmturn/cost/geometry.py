"""What one layer of a model keeps for a sequence: the shape, before any dtype or parallelism.

attention        2 vectors (key, value) per KV head and token, all tokens or the last `window`
latent (MLA)     1 vector per token, shared by all heads; with an indexer one key more
state            a constant per sequence, whatever its length (linear attention, SSM, conv)
shared           nothing: the layer reads the keys and values of an earlier one
"""

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["HeadCache", "LatentCache", "Layer", "LayerCache", "ModelGeometry", "StateCache"]


@dataclass(frozen=True, slots=True)
class HeadCache:
    """Keys and values per head."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None = None
    """Only the last tokens are kept; None: all are."""

    @property
    def elements_per_token(self) -> int:
        """Stored numbers of one token in this layer."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True)
class LatentCache:
    """One latent per token, the same for all heads (multi-head latent attention)."""

    latent_dim: int
    rope_dim: int
    index_dim: int | None = None
    """Of the indexer's key, in sparse attention; None without an indexer."""
    window_tokens: int | None = None

    @property
    def elements_per_token(self) -> int:
        """Stored numbers of one token in this layer, the indexer's key included."""
        return self.latent_dim + self.rope_dim + (self.index_dim or 0)


LayerCache: TypeAlias = HeadCache | LatentCache


@dataclass(frozen=True, slots=True)
class StateCache:
    """What a recurrent layer keeps per sequence, in elements."""

    conv_elements: int
    recurrent_elements: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer in order. `cache` and `state` may both be there (parallel hybrids)."""

    cache: LayerCache | None = None
    state: StateCache | None = None
    is_shared: bool = False
    """Attends, but to keys and values that an earlier layer owns."""


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """All layers of one model, in order."""

    name: str
    layers: tuple[Layer, ...]
    num_query_heads: int
    head_dim: int
    """Of a query: with `num_query_heads` what attention computes per token."""
    speculative_layers: tuple[Layer, ...] = ()
    """Layers of multi-token prediction: they keep K/V where speculation is on."""
    notes: tuple[str, ...] = ()
    """What was assumed, and what is not counted."""

    @property
    def num_owning_layers(self) -> int:
        """Layers with keys and values of their own."""
        return sum(layer.cache is not None for layer in self.layers)

    @property
    def num_owning_window_layers(self) -> int:
        """Of these, the ones that keep a window only."""
        return sum(
            layer.cache is not None and layer.cache.window_tokens is not None
            for layer in self.layers
        )

    @property
    def num_attention_layers(self) -> int:
        """Layers that attend to keys and values, their own or an earlier layer's."""
        return sum(layer.cache is not None or layer.is_shared for layer in self.layers)

    @property
    def elements_per_token(self) -> int:
        """Stored numbers of one more token while all windows still grow."""
        return sum(layer.cache.elements_per_token for layer in self.layers if layer.cache)
