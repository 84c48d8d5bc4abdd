"""A GGUF file's metadata as a config in the Hugging Face form. Weights are not read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmturn.errors import InvalidInput, MissingExtra

__all__ = ["config_of_gguf", "config_of_metadata"]

_FIELDS = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "head_count_kv",
    "attention.key_length": "head_dim",
    "attention.value_length": "v_head_dim",
    "attention.key_length_swa": "swa_head_dim",
    "attention.value_length_swa": "swa_v_head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.shared_kv_layers": "num_kv_shared_layers",
    "attention.indexer.key_length": "index_head_dim",
    "full_attention_interval": "full_attention_interval",
    "nextn_predict_layers": "num_nextn_predict_layers",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
    "vocab_size": "vocab_size",
    "shortconv.l_cache": "conv_L_cache",
}
"""GGUF name after the architecture → field here."""

_MODEL_TYPES = {"gpt-oss": "gpt_oss", "gemma-embedding": "gemma3", "falcon-h1": "falcon_h1"}


def config_of_gguf(path: Path) -> tuple[dict[str, Any], int]:
    """Return the config and the size of the file, which is about that of its weights.

    Raises `InvalidInput` where it cannot be read, `MissingExtra` without the gguf package.
    """
    try:
        from gguf import GGUFReader  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"reading {path.name} ({error.name} is not installed)", extra="engine"
        ) from error
    try:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # the reader has no error of its own
        raise InvalidInput(
            f"{path} cannot be read as GGUF ({type(error).__name__}: {str(error)[:80]}); fetch it again"
        ) from error
    return config_of_metadata(fields, name=path.name), path.stat().st_size


def config_of_metadata(fields: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """Return the config that GGUF key-value pairs describe."""
    architecture = fields.get("general.architecture")
    if not isinstance(architecture, str):
        raise InvalidInput(f"{name} names no general.architecture; it is no language model's GGUF")
    config = {
        ours: fields[key]
        for theirs, ours in _FIELDS.items()
        if (key := f"{architecture}.{theirs}") in fields
    }
    config["model_type"] = _MODEL_TYPES.get(architecture, architecture)
    _add_vocabulary(config, fields)
    _add_latent(config, architecture, fields)
    _add_window(config, architecture, fields)
    _add_states(config, architecture, fields)
    return config


def _add_vocabulary(config: dict[str, Any], fields: Mapping[str, Any]) -> None:
    tokens = fields.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list):
        config.setdefault("vocab_size", len(tokens))


def _add_latent(config: dict[str, Any], arch: str, fields: Mapping[str, Any]) -> None:
    """With MLA `key_length` is that of the expanded key; the rotary part has a field of its own."""
    if "kv_lora_rank" not in config:
        return
    rope = fields.get(f"{arch}.rope.dimension_count")
    config["qk_rope_head_dim"] = rope
    full = fields.get(f"{arch}.attention.key_length_mla")
    if isinstance(full, int) and isinstance(rope, int):
        config["qk_nope_head_dim"] = full - rope
    value = fields.get(f"{arch}.attention.value_length_mla")
    if value is not None:
        config["v_head_dim"] = value


def _add_window(config: dict[str, Any], arch: str, fields: Mapping[str, Any]) -> None:
    """A pattern per layer is a list of truths: true keeps a window; else a period."""
    pattern = fields.get(f"{arch}.attention.sliding_window_pattern")
    if isinstance(pattern, list):
        num_layers = config.get("num_hidden_layers")
        words = ["sliding_attention" if is_window else "full_attention" for is_window in pattern]
        config["layer_types"] = words[:num_layers] if isinstance(num_layers, int) else words
    elif pattern is not None:
        config["sliding_window_pattern"] = pattern
    if config.get("sliding_window") == 0:
        del config["sliding_window"]


def _add_states(config: dict[str, Any], arch: str, fields: Mapping[str, Any]) -> None:
    """GGUF has one set of SSM fields for gated delta, Mamba 1 and Mamba 2."""
    inner = fields.get(f"{arch}.ssm.inner_size")
    state = fields.get(f"{arch}.ssm.state_size")
    if not isinstance(inner, int) or not isinstance(state, int):
        return
    heads = fields.get(f"{arch}.ssm.time_step_rank")
    groups = fields.get(f"{arch}.ssm.group_count")
    width = fields.get(f"{arch}.ssm.conv_kernel")
    if "full_attention_interval" in config and isinstance(heads, int) and heads:
        config |= {
            "linear_num_value_heads": heads,
            "linear_num_key_heads": groups,
            "linear_key_head_dim": state,
            "linear_value_head_dim": inner // heads,
            "linear_conv_kernel_dim": width,
        }
        return
    config |= {"mamba_d_state": state, "mamba_d_conv": width, "mamba_d_ssm": inner}
    if groups and isinstance(heads, int):
        config |= {"mamba_n_heads": heads, "mamba_n_groups": groups, "mamba_d_head": "auto"}
    kv_heads = config.get("head_count_kv")
    if isinstance(kv_heads, list) and 0 in kv_heads:  # layers without KV heads are the recurrent
        config["attn_layer_indices"] = [i for i, heads in enumerate(kv_heads) if heads]
