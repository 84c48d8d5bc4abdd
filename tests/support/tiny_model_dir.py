"""A whole model directory of a megabyte: random weights, one token per byte, ChatML."""

import json
from pathlib import Path

from tests.support.tiny_models import save_tiny_model
from tests.support.tiny_tokenizer import write_tiny_tokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(directory: Path, *, max_tokens: int = 4096) -> Path:
    """Write a model that `warmturn engine --model` serves within seconds."""
    directory.mkdir(exist_ok=True)
    save_tiny_model(directory, vocab_size=260, max_position_embeddings=max_tokens, eos_token_id=258)
    write_tiny_tokenizer(directory)
    config = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
