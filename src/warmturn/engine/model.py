"""The forward pass of a dense decoder over paged keys and values."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from warmturn.engine.attention import Attention
from warmturn.engine.batch import Batch
from warmturn.engine.model_config import ModelConfig
from warmturn.engine.paged_kv import PagedKv
from warmturn.engine.rope import RopeTable, rotate
from warmturn.engine.weights import LayerWeights, Weights, load_weights

__all__ = ["LoadedModel", "forward", "load_model"]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Configuration, weights and rotary table; several executors may share one."""

    config: ModelConfig
    weights: Weights
    rope: RopeTable
    dtype: torch.dtype
    device: torch.device


def load_model(directory: Path, *, dtype: torch.dtype, device: torch.device) -> LoadedModel:
    """Load the model in `directory`; raises `InvalidInput` or `UnsupportedModel`."""
    config = ModelConfig.from_directory(directory)
    weights = load_weights(directory, config, dtype=dtype, device=device)
    rope = RopeTable(config, dtype=dtype, device=device)
    return LoadedModel(config=config, weights=weights, rope=rope, dtype=dtype, device=device)


def forward(model: LoadedModel, kv: PagedKv, attention: Attention, batch: Batch) -> Tensor:
    """Compute the batch: write its keys and values, return float32 logits.

    `[num_sampling_works, vocab_size]`, in the order of `batch.sampled`.
    """
    config, layers = model.config, model.weights.layers
    hidden = functional.embedding(batch.token_ids, model.weights.embedding)
    cos, sin = model.rope.cos[batch.positions], model.rope.sin[batch.positions]
    for index, layer in enumerate(layers):
        queries, keys_values = _project(config, layer, hidden, cos, sin)
        kv.write(index, batch.blocks, batch.rows, keys_values)
        if index < len(layers) - 1:
            attended = attention.batch(index, queries, keys_values, batch)
        else:
            # Past the last keys and values only the tokens that are asked for matter.
            if not len(batch.sampled):
                return hidden.new_empty((0, config.vocab_size), dtype=torch.float32)
            hidden, queries = hidden[batch.sampled.rows], queries[batch.sampled.rows]
            attended = attention.singles(index, queries, batch.sampled)
        hidden = layer.output.add_to(hidden, attended.flatten(1))
        gate, up = layer.gate_up(_norm(config, hidden, layer.mlp_norm)).chunk(2, -1)
        hidden = layer.down.add_to(hidden, functional.silu(gate).mul_(up))
    return model.weights.head(_norm(config, hidden, model.weights.norm)).float()


def _project(
    config: ModelConfig, layer: LayerWeights, hidden: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    """Return rotated queries `[n, heads, head_dim]` and keys beside values `[n, 2, kv, hd]`."""
    num_heads, num_rotated = config.num_heads, config.num_heads + config.num_kv_heads
    qkv = layer.qkv(_norm(config, hidden, layer.input_norm)).view(len(hidden), -1, config.head_dim)
    heads = qkv[:, :num_rotated]
    if layer.query_norm is not None and layer.key_norm is not None:
        queries = _norm(config, heads[:, :num_heads], layer.query_norm)
        heads = torch.cat((queries, _norm(config, heads[:, num_heads:], layer.key_norm)), 1)
    rotated = rotate(heads, cos, sin)
    keys_values = torch.stack((rotated[:, num_heads:], qkv[:, num_rotated:]), 1)
    return rotated[:, :num_heads], keys_values


def _norm(config: ModelConfig, x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, config.rms_norm_eps)
