"""A model directory the real engine serves: random weights, a byte per token, ChatML."""

import json

from tests.support.tiny_models import save_tiny_model
from tests.support.tiny_tokenizer import write_tiny_tokenizer

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NUM_TOKENS = 260


def write_tiny_directory(directory, *, max_model_len=4096):
    """Fill `directory` and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    save_tiny_model(
        directory, vocab_size=NUM_TOKENS, max_position_embeddings=max_model_len, eos_token_id=258
    )
    write_tiny_tokenizer(directory)
    config = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
