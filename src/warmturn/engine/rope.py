"""Rotary position embeddings: one table per model, one row per position."""

import math

import torch
from torch import Tensor

from warmturn.engine.model_config import Llama3Scaling, ModelConfig

__all__ = ["RopeTable", "rotate"]


class RopeTable:
    """Cosines and sines of all positions, computed once in float32.

    The sine's first half is negated, so that `rotate` needs no negation per layer.
    """

    def __init__(self, config: ModelConfig, *, dtype: torch.dtype, device: torch.device) -> None:
        frequencies = _frequencies(config)  # [head_dim / 2]
        positions = torch.arange(config.max_position_embeddings, dtype=torch.float32)
        angles = torch.outer(positions, frequencies)
        cos, sin = angles.cos(), angles.sin()
        # [max_position_embeddings, 1, head_dim]; the 1 broadcasts over heads.
        self.cos = torch.cat((cos, cos), 1)[:, None].to(device, dtype)
        self.sin = torch.cat((-sin, sin), 1)[:, None].to(device, dtype)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return `heads` `[num_tokens, num_heads, head_dim]` rotated by rows of a `RopeTable`."""
    low, high = heads.chunk(2, -1)
    return torch.addcmul(heads * cos, torch.cat((high, low), -1), sin)


def _frequencies(config: ModelConfig) -> Tensor:
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    return _stretch(frequencies, config.rope_scaling) if config.rope_scaling else frequencies


def _stretch(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Slow the frequencies whose wave is longer than the original context, as Llama 3 does.

    Waves shorter than context / high_freq_factor stay, longer than context / low_freq_factor
    are slowed by `factor`; between the two bounds the share of each is interpolated.
    """
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return kept * frequencies + (1 - kept) * frequencies / scaling.factor
