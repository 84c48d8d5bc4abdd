"""Random models of two layers, saved by transformers, and steps to run them with."""

import numpy as np
import torch
import transformers

from warmturn.replica.step import Step, Work

VOCAB_SIZE = 97
KINDS = ("llama", "llama_biased", "llama3", "mistral", "qwen2", "qwen3")

COMMON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,  # large, so that attention is far from uniform
    "eos_token_id": 3,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def config_of(kind, **changes):
    """Return a transformers config of one of `KINDS`."""
    match kind:
        case "llama":
            return transformers.LlamaConfig(**COMMON | {"tie_word_embeddings": True} | changes)
        case "llama_biased":
            biases = {"attention_bias": True, "mlp_bias": True}
            return transformers.LlamaConfig(**COMMON | biases | changes)
        case "llama3":
            return transformers.LlamaConfig(**COMMON | {"rope_parameters": LLAMA3_ROPE} | changes)
        case "mistral":
            return transformers.MistralConfig(**COMMON | {"sliding_window": None} | changes)
        case "qwen2":
            return transformers.Qwen2Config(**COMMON | changes)
        case "qwen3":
            return transformers.Qwen3Config(**COMMON | {"head_dim": 16} | changes)
    raise AssertionError(kind)


def save_tiny_model(directory, kind="llama", **changes):
    """Save a random model in `directory`; return transformers' own model, in float32."""
    torch.manual_seed(7)
    config = config_of(kind, **changes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:  # ones and zeros would hide a missing one
                parameter.uniform_(0.5, 1.5)
    model.eval().save_pretrained(directory)
    return model


def random_tokens(num_tokens, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB_SIZE, num_tokens).astype(np.int32)


def true_logits(model, tokens):
    """Return transformers' logits after each token, `[num_tokens, vocab_size]`."""
    with torch.inference_mode():
        return model(torch.from_numpy(tokens).long()[None]).logits[0].float()


class Sequences:
    """Scattered blocks for a few sequences, and the work that feeds them."""

    def __init__(self, num_blocks, block_size, seed=0):
        self.block_size = block_size
        self.free = list(np.random.default_rng(seed).permutation(num_blocks).astype(np.int32))
        self.blocks = {}

    def work(self, request_id, tokens, position, *, samples=True):
        """Feed `tokens` at `position`, on new blocks as needed."""
        mine = self.blocks.setdefault(request_id, [])
        end = position + len(tokens)
        while len(mine) * self.block_size < end:
            mine.append(self.free.pop())
        num_blocks = -(-end // self.block_size)
        return Work(
            request_id=request_id,
            token_ids=np.asarray(tokens, np.int32),
            position=position,
            block_ids=np.array(mine[:num_blocks], np.int32),
            samples=samples,
            is_decode=False,
        )


def step(*works):
    return Step(number=0, works=works)
