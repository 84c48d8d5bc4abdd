"""GGUF files (llama architecture) to Hugging Face model directories, dequantised to bf16.

Done once per file; afterwards every model is a directory with `config.json`, safetensors and
`tokenizer.json`, and the rest of the engine knows no other form.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file
from torch import Tensor

from warmturn.engine.gguf_tokenizer import special_token, tokenizer_of
from warmturn.errors import InvalidInput, UnsupportedModel

__all__ = ["convert_gguf"]

TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_gguf(path: Path, directory: Path) -> None:
    """Write the model in the GGUF file `path` into `directory`, which exists.

    Weights are dequantised and rounded to bf16. Peak memory is the bf16 model. Raises
    `InvalidInput` for a broken file, `UnsupportedModel` for what this engine does not run.
    """
    reader = _open(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = _config_of(path, fields, {tensor.name for tensor in reader.tensors})
    tokenizer = tokenizer_of(path, fields)
    tensors = dict(_tensors(path, reader, config))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    ids = ("bos_token_id", "eos_token_id", "pad_token_id")
    _write_json(directory / "config.json", config)
    _write_json(
        directory / "generation_config.json", {name: config[name] for name in ids if name in config}
    )
    _write_json(directory / "tokenizer_config.json", _tokenizer_config(fields, config))
    tokenizer.save(str(directory / "tokenizer.json"))


def _open(path: Path) -> GGUFReader:
    try:
        return GGUFReader(path)
    # The reader has no error of its own: what a broken file raises depends on where it breaks.
    except Exception as error:
        raise InvalidInput(f"{path} cannot be read as GGUF: {error}") from error


def _config_of(path: Path, fields: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Return the model's config.json."""
    if fields.get("general.architecture") != "llama":
        raise _unsupported(path, f"architecture {fields.get('general.architecture')!r}")
    if fields.get("llama.expert_count"):
        raise _unsupported(path, "mixture of experts")
    # Llama 3.1 and later store the stretched frequencies, not the numbers they came from.
    if "rope_freqs.weight" in names or fields.get("llama.rope.scaling.type", "none") != "none":
        raise _unsupported(path, "rope scaling")

    def read(name: str) -> Any:
        if f"llama.{name}" not in fields:
            raise InvalidInput(f"{path} has no field 'llama.{name}'")
        return fields[f"llama.{name}"]

    num_heads, hidden_size = read("attention.head_count"), read("embedding_length")
    head_dim = fields.get("llama.attention.key_length", hidden_size // num_heads)
    if fields.get("llama.rope.dimension_count", head_dim) != head_dim:
        raise _unsupported(path, "a rotation of only a part of each head")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(fields.get("tokenizer.ggml.tokens", ())),
        "hidden_size": hidden_size,
        "intermediate_size": read("feed_forward_length"),
        "num_hidden_layers": read("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": read("context_length"),
        # GGUF keeps it as float32; seven digits bring back the number that was meant.
        "rms_norm_eps": float(f"{read('attention.layer_norm_rms_epsilon'):.7g}"),
        "rope_theta": fields.get("llama.rope.freq_base", 10_000.0),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in names,
        "torch_dtype": "bfloat16",
    }
    for name, field in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        token_id = fields.get(f"tokenizer.ggml.{field}_token_id")
        if token_id is not None:
            config[f"{name}_token_id"] = token_id
    return config


def _tensors(
    path: Path, reader: GGUFReader, config: Mapping[str, Any]
) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor under its Hugging Face name, in bf16."""
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    for tensor in reader.tensors:
        name, kind = _name_of(path, tensor.name)
        weight = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if kind in heads:
            weight = _half_split(weight, heads[kind])
        yield name, weight.to(torch.bfloat16).contiguous()


def _name_of(path: Path, name: str) -> tuple[str, str]:
    """Return a tensor's Hugging Face name and its kind, such as `attn_q`."""
    parts = name.split(".")
    if len(parts) == 2 and parts[1] == "weight" and parts[0] in TOP_NAMES:
        return f"{TOP_NAMES[parts[0]]}.weight", parts[0]
    if len(parts) == 4 and parts[3] == "weight" and parts[2] in LAYER_NAMES:
        return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight", parts[2]
    raise _unsupported(path, f"tensor '{name}'")


def _half_split(weight: Tensor, num_heads: int) -> Tensor:
    """Reorder each head's rows `[rows, columns]` for a rotation of halves.

    GGUF rotates neighbouring rows (0, 1), (2, 3) …; Hugging Face rotates row i of the first
    half with row i of the second.
    """
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)


def _tokenizer_config(fields: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    tokens = {
        f"{name}_token": special_token(fields, field)
        for name, field in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "chat_template": fields.get("tokenizer.chat_template"),
        **{name: token for name, token in tokens.items() if token is not None},
    }


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _unsupported(path: Path, what: str) -> UnsupportedModel:
    return UnsupportedModel(f"{path}: {what} is not supported when reading GGUF")
