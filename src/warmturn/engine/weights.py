"""A model's weights from safetensors files: found, checked, packed, on their device."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from warmturn.engine.linear import Linear
from warmturn.engine.model_config import ModelConfig, read_json_object
from warmturn.errors import InvalidInput

__all__ = ["LayerWeights", "Weights", "load_weights"]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. Linear layers that read the same input are one packed matrix."""

    input_norm: Tensor
    qkv: Linear
    """Rows: query heads, key heads, value heads."""
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of one decoder, in one dtype on one device."""

    embedding: Tensor
    """`[vocab_size, hidden_size]`"""
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear


def load_weights(
    directory: Path, config: ModelConfig, *, dtype: torch.dtype, device: torch.device
) -> Weights:
    """Read the model in `directory` and convert it to `dtype` on `device`.

    Reads one tensor at a time, so the peak is the result plus one layer. Raises
    `InvalidInput` for missing, truncated or misshaped files and tensors.
    """
    with ExitStack() as stack:
        source = _Source(directory, stack, dtype=dtype, device=device)
        return _Builder(source, config).weights()


class _Source:
    """Tensors by name over one or several open safetensors files."""

    def __init__(
        self, directory: Path, stack: ExitStack, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.directory = directory
        self.dtype = dtype
        self.device = device
        self._file_of: dict[str, Any] = {}
        for path in _weight_files(directory):
            file = stack.enter_context(_open(path))
            self._file_of |= dict.fromkeys(file.keys(), file)

    def has(self, name: str) -> bool:
        return name in self._file_of

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return a private copy of the tensor, after checking its shape and kind."""
        if name not in self._file_of:
            raise InvalidInput(f"{self.directory}: the weights have no tensor '{name}'")
        piece = self._file_of[name].get_slice(name)
        found = tuple(piece.get_shape())
        if found != shape:
            raise InvalidInput(
                f"{self.directory}: tensor '{name}' has shape {list(found)}, "
                f"config.json asks for {list(shape)}"
            )
        if piece.get_dtype() not in ("BF16", "F16", "F32"):
            raise InvalidInput(
                f"{self.directory}: tensor '{name}' is {piece.get_dtype()}; "
                "only BF16, F16 and F32 weights are supported"
            )
        tensor: Tensor = self._file_of[name].get_tensor(name)
        # The file is mapped; a copy lets its pages go when it is closed.
        return tensor.to(self.device, self.dtype, copy=True)


class _Builder:
    """Names and shapes of a decoder's tensors, as Hugging Face writes them."""

    def __init__(self, source: _Source, config: ModelConfig) -> None:
        self.source = source
        self.config = config

    def weights(self) -> Weights:
        config = self.config
        embedding = self.source.read(
            "model.embed_tokens.weight", (config.vocab_size, config.hidden_size)
        )
        return Weights(
            embedding=embedding,
            layers=tuple(self._layers()),
            norm=self.source.read("model.norm.weight", (config.hidden_size,)),
            head=Linear(embedding if config.tie_word_embeddings else self._head(), None),
        )

    def _head(self) -> Tensor:
        return self.source.read("lm_head.weight", (self.config.vocab_size, self.config.hidden_size))

    def _layers(self) -> Iterator[LayerWeights]:
        for index in range(self.config.num_layers):
            yield self._layer(f"model.layers.{index}.")

    def _layer(self, prefix: str) -> LayerWeights:
        config, hidden = self.config, self.config.hidden_size
        q_size = config.num_heads * config.head_dim
        kv_size = config.num_kv_heads * config.head_dim
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        qkv = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        gate_up = dict.fromkeys(("gate_proj", "up_proj"), config.intermediate_size)
        return LayerWeights(
            input_norm=self.source.read(f"{prefix}input_layernorm.weight", (hidden,)),
            qkv=self._stacked(attention, qkv, hidden, has_bias=config.has_qkv_bias),
            query_norm=self._head_norm(f"{attention}q_norm.weight"),
            key_norm=self._head_norm(f"{attention}k_norm.weight"),
            output=self._stacked(
                attention, {"o_proj": hidden}, q_size, has_bias=config.has_output_bias
            ),
            mlp_norm=self.source.read(f"{prefix}post_attention_layernorm.weight", (hidden,)),
            gate_up=self._stacked(mlp, gate_up, hidden, has_bias=config.has_mlp_bias),
            down=self._stacked(
                mlp, {"down_proj": hidden}, config.intermediate_size, has_bias=config.has_mlp_bias
            ),
        )

    def _head_norm(self, name: str) -> Tensor | None:
        if not self.config.has_qk_norm:
            return None
        return self.source.read(name, (self.config.head_dim,))

    def _stacked(
        self, prefix: str, rows: Mapping[str, int], columns: int, *, has_bias: bool
    ) -> Linear:
        """Stack the named projections, `[rows, columns]` each, into one layer."""
        for name in rows:
            if self.source.has(f"{prefix}{name}.bias") != has_bias:
                raise InvalidInput(
                    f"{self.source.directory}: '{prefix}{name}.bias' is "
                    f"{'missing' if has_bias else 'there'}, against config.json"
                )
        read = self.source.read
        weight = torch.cat([read(f"{prefix}{n}.weight", (rows[n], columns)) for n in rows])
        if not has_bias:
            return Linear(weight, None)
        return Linear(weight, torch.cat([read(f"{prefix}{n}.bias", (rows[n],)) for n in rows]))


def _weight_files(directory: Path) -> list[Path]:
    """Return the single file, or the ones a sharded model's index names."""
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.exists():
        return [single]
    if not index.exists():
        raise InvalidInput(f"{directory} has neither {single.name} nor {index.name}")
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidInput(f"{index} has no field 'weight_map'")
    return [directory / name for name in sorted(set(map(str, weight_map.values())))]


def _open(path: Path) -> Any:
    """Open a safetensors file; one clear error for one that is missing or cut short."""
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise InvalidInput(f"{path} is missing, truncated or broken: {error}") from error
