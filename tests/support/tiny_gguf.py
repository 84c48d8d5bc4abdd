"""A tiny llama GGUF with a byte-level tokenizer, written by the `gguf` library."""

import gguf
import numpy as np
from safetensors.torch import load_file
from tokenizers import pre_tokenizers

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("Ġ t", "h e", "Ġt he", "1 2")

HEADS = {"self_attn.q_proj": 6, "self_attn.k_proj": 2}
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def vocabulary():
    """Special tokens, the 256 bytes' letters, and what the merges make."""
    made = [merge.replace(" ", "") for merge in MERGES]
    return [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *made]


def write_gguf(path, model_dir, *, pre="smollm", changes=None, extra_tensor=None):
    """Write the tiny model in `model_dir` (of `save_tiny_model`) as GGUF.

    `changes` adds or overrides string and number fields; None as value leaves one out.
    """
    tokens = vocabulary()
    fields = {
        "llama.context_length": 256,
        "llama.embedding_length": 48,
        "llama.block_count": 2,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 6,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.freq_base": 10_000.0,
        "llama.rope.dimension_count": 8,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    } | (changes or {})
    writer = gguf.GGUFWriter(path, fields.pop("general.architecture", "llama"))
    for name, value in fields.items():
        match value:
            case bool():
                writer.add_bool(name, value)
            case int():
                writer.add_uint32(name, value)
            case float():
                writer.add_float32(name, value)
            case str():
                writer.add_string(name, value)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    for name, tensor in load_file(model_dir / "model.safetensors").items():
        writer.add_tensor(*_as_gguf(name, tensor.float().numpy()))
    if extra_tensor:
        writer.add_tensor(extra_tensor, np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _as_gguf(name, tensor):
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    name = name.removesuffix(".weight")
    if name in top:
        return f"{top[name]}.weight", tensor
    _, _, layer, kind = name.split(".", 3)
    if kind in HEADS:
        tensor = _interleaved(tensor, HEADS[kind])
    return f"blk.{layer}.{NAMES[kind]}.weight", np.ascontiguousarray(tensor)


def _interleaved(weight, num_heads):
    """Put row i and row i + half of each head beside each other, one row at a time."""
    rows = []
    for head in np.split(weight, num_heads):
        half = len(head) // 2
        for i in range(half):
            rows += [head[i], head[i + half]]
    return np.stack(rows)
