"""Bringing keys and values back against computing them again: bytes against operations."""

from dataclasses import dataclass

from warmturn.cost.geometry import ModelGeometry
from warmturn.errors import InvalidInput

__all__ = ["PrefillWork", "ReloadEstimate", "prefill_work", "reload_estimate"]


@dataclass(frozen=True, slots=True)
class PrefillWork:
    """Floating-point operations of one prefill."""

    weights: float
    """2 per active parameter and token."""
    attention: float
    """4 per pair of tokens, query head and head dimension, in layers that attend: the product of
    queries and keys, and that of weights and values. Causal: half of all pairs, and in window
    layers only those inside the window."""

    @property
    def total(self) -> float:
        """Both."""
        return self.weights + self.attention


def prefill_work(
    geometry: ModelGeometry, *, num_tokens: int, active_parameters: float, num_cached: int = 0
) -> PrefillWork:
    """Return the operations to compute the tokens after the first `num_cached` of a prompt."""
    new = max(0, num_tokens - num_cached)
    per_pair = 4.0 * geometry.num_query_heads * geometry.head_dim
    pairs = sum(
        _pairs(num_cached, num_tokens, layer.cache.window_tokens if layer.cache else None)
        for layer in geometry.layers
        if layer.cache is not None or layer.is_shared
    )
    return PrefillWork(2.0 * active_parameters * new, per_pair * pairs)


def _pairs(first: int, stop: int, window: int | None) -> float:
    """Return how many earlier tokens the tokens from `first` to `stop` attend to, summed up."""
    if window is None or stop <= window:
        return (stop * stop - first * first) / 2
    inside = max(0, window - first)
    grows = (window * window - first * first) / 2 if inside else 0.0
    return grows + float(window) * (stop - max(first, window))


@dataclass(frozen=True, slots=True)
class ReloadEstimate:
    """Both ways for the same tokens; seconds."""

    num_bytes: int
    work: PrefillWork
    reload_s: float
    recompute_s: float
    """Of the weights' operations alone."""
    recompute_with_attention_s: float
    break_even_bytes_per_s: float
    """A slower link than this loses to recomputing (attention counted)."""


def reload_estimate(
    *,
    num_bytes: int,
    work: PrefillWork,
    bytes_per_s: float,
    operations_per_s: float,
    fixed_s: float = 0.0,
) -> ReloadEstimate:
    """Return both times at these rates. Raises `InvalidInput` unless the rates are above 0."""
    if bytes_per_s <= 0 or operations_per_s <= 0:
        raise InvalidInput(
            f"a link of {bytes_per_s} bytes/s and {operations_per_s} operations/s: both must be "
            "above 0"
        )
    with_attention = work.total / operations_per_s
    return ReloadEstimate(
        num_bytes,
        work,
        fixed_s + num_bytes / bytes_per_s,
        work.weights / operations_per_s,
        with_attention,
        num_bytes / with_attention if with_attention else float("inf"),
    )
