"""What a model's `config.json` says, checked: the decoders this engine runs, and no others."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from warmturn.errors import InvalidInput, UnsupportedModel

__all__ = ["Llama3Scaling", "ModelConfig", "read_json_object"]

T = TypeVar("T", int, float, bool, str)

SUPPORTED = "llama, mistral, qwen2, qwen3"
"""The model types whose layers this engine computes; SmolLM2 is a llama."""


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3's stretching of the slow rotary frequencies; the names are those of config.json."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Geometry of a dense decoder with rotary embeddings and grouped-query attention."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    """Longest sequence the model was made for, in tokens."""
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Llama3Scaling | None
    tie_word_embeddings: bool
    """True: the output head is the embedding table."""
    has_qkv_bias: bool
    has_output_bias: bool
    """Bias of the attention's output projection."""
    has_mlp_bias: bool
    has_qk_norm: bool
    """True: an RMS norm over every query and key head before the rotation (Qwen3)."""
    eos_token_ids: tuple[int, ...]
    """Any of them ends a reply; of generation_config.json where it names some."""

    @classmethod
    def from_directory(cls, path: Path) -> "ModelConfig":
        """Read `config.json` and, where it exists, `generation_config.json` in `path`.

        Raises `InvalidInput` for a missing file, broken JSON or a missing or wrong field,
        `UnsupportedModel` for a model that would be computed wrongly.
        """
        fields = _Fields(path / "config.json", read_json_object(path / "config.json"))
        _refuse_unsupported(fields)
        num_heads = fields.read("num_attention_heads", int)
        hidden_size = fields.read("hidden_size", int)
        num_kv_heads = fields.read("num_key_value_heads", int, num_heads)
        if num_heads % num_kv_heads:
            raise InvalidInput(
                f"{fields.path}: num_attention_heads ({num_heads}) is not a multiple of "
                f"num_key_value_heads ({num_kv_heads})"
            )
        model_type = fields.read("model_type", str)
        attention_bias = fields.read("attention_bias", bool, default=False)
        rope = _rope_of(fields)
        return cls(
            model_type=model_type,
            vocab_size=fields.read("vocab_size", int),
            hidden_size=hidden_size,
            intermediate_size=fields.read("intermediate_size", int),
            num_layers=fields.read("num_hidden_layers", int),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=_head_dim(fields, hidden_size, num_heads),
            max_position_embeddings=fields.read("max_position_embeddings", int),
            rms_norm_eps=fields.read("rms_norm_eps", float),
            rope_theta=rope.read("rope_theta", float),
            rope_scaling=_llama3_of(rope),
            tie_word_embeddings=fields.read("tie_word_embeddings", bool, default=False),
            # Qwen2 has these biases always and no switch for them in its config.
            has_qkv_bias=attention_bias or model_type == "qwen2",
            has_output_bias=attention_bias and model_type != "qwen2",
            has_mlp_bias=fields.read("mlp_bias", bool, default=False),
            has_qk_norm=model_type == "qwen3",
            eos_token_ids=_eos_token_ids(path, fields),
        )


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in the file; `InvalidInput` names the file and what is wrong."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist; a model directory needs it") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} holds a JSON {type(value).__name__}, not an object")
    return value


class _Fields:
    """Typed reading of one JSON object, with errors that name the file and the field."""

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.path = path
        self.values = values
        self.prefix = prefix

    def read(self, name: str, kind: type[T], default: T | None = None) -> T:
        """Return the field; null counts as missing. Numbers must be positive."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise InvalidInput(f"{self.path} has no field '{self.prefix}{name}'")
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(name, f"expected {kind.__name__}")
        if kind in (int, float) and not value > 0:
            raise self.error(name, "expected a positive number")
        return value

    def error(self, name: str, expected: str) -> InvalidInput:
        """Say that a field has a value it cannot have."""
        value = self.values.get(name)
        return InvalidInput(f"{self.path}: field '{self.prefix}{name}' is {value!r}, {expected}")


def _refuse_unsupported(fields: _Fields) -> None:
    """Refuse what this engine would load but compute wrongly."""
    values, model_type = fields.values, fields.read("model_type", str)
    if model_type not in SUPPORTED.split(", "):
        _refuse(fields, f"model_type '{model_type}' is not supported; supported: {SUPPORTED}")
    # Qwen configs carry a window that `use_sliding_window: false` switches off.
    window = values.get("sliding_window")
    if window is not None and values.get("use_sliding_window", True):
        _refuse(fields, f"sliding window attention ({window} tokens) is not supported")
    for name, supported in (("hidden_act", "silu"), ("partial_rotary_factor", 1.0)):
        if values.get(name, supported) != supported:
            _refuse(fields, f"{name} {values[name]!r} is not supported, only {supported!r}")
    kinds = set(values.get("layer_types") or ()) - {"full_attention"}
    if kinds:
        _refuse(fields, f"layer types {', '.join(sorted(map(str, kinds)))} are not supported")
    for name, what in (
        ("quantization_config", "quantised weights"),
        ("num_experts", "mixture of experts"),
        ("num_local_experts", "mixture of experts"),
    ):
        if values.get(name):
            _refuse(fields, f"{what} ({name}) is not supported")


def _refuse(fields: _Fields, what: str) -> None:
    raise UnsupportedModel(f"{fields.path}: {what} by the embedded engine")


def _head_dim(fields: _Fields, hidden_size: int, num_heads: int) -> int:
    # Qwen3 configs that leave it out mean 128, whatever hidden_size / num_heads is.
    derived = 128 if fields.values["model_type"] == "qwen3" else hidden_size // num_heads
    head_dim = fields.read("head_dim", int, derived)
    if head_dim % 2:
        raise fields.error("head_dim", "the rotation needs an even number")
    return head_dim


def _rope_of(fields: _Fields) -> _Fields:
    """Return the rotary fields, from either form of config.json.

    Newer files have all in `rope_parameters`, older ones `rope_theta` beside `rope_scaling`.
    """
    name = "rope_parameters" if fields.values.get("rope_parameters") else "rope_scaling"
    values = fields.values.get(name) or {}
    if not isinstance(values, dict):
        raise fields.error(name, "expected an object")
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in ("default", "llama3"):
        _refuse(fields, f"rope type {kind!r} is not supported, only 'default' and 'llama3'")
    # Models older than the field mean 10,000.
    theta = values.get("rope_theta", fields.values.get("rope_theta", 10_000.0))
    return _Fields(fields.path, {**values, "rope_theta": theta, "rope_type": kind}, f"{name}.")


def _llama3_of(rope: _Fields) -> Llama3Scaling | None:
    if rope.values["rope_type"] != "llama3":
        return None
    return Llama3Scaling(
        factor=rope.read("factor", float),
        low_freq_factor=rope.read("low_freq_factor", float),
        high_freq_factor=rope.read("high_freq_factor", float),
        original_max_position_embeddings=rope.read("original_max_position_embeddings", int),
    )


def _eos_token_ids(directory: Path, config: _Fields) -> tuple[int, ...]:
    path = directory / "generation_config.json"
    generation = _Fields(path, read_json_object(path) if path.exists() else {})
    fields = generation if generation.values.get("eos_token_id") is not None else config
    value = fields.values.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in ids):
        raise fields.error("eos_token_id", "expected an integer or a list of integers")
    return tuple(ids)
