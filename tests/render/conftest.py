"""Fixtures of the render tests: real tokenizers, and tiny ones made on the spot."""

from functools import lru_cache

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from warmturn.render import Tokenizer


@pytest.fixture(scope="session")
def real_tokenizer(model_directory):
    """Name → (ours, the library's own), loaded once."""

    @lru_cache
    def load(name: str) -> tuple[Tokenizer, tokenizers.Tokenizer]:
        directory = model_directory(name)
        library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        return Tokenizer.from_directory(directory), library

    return load


@pytest.fixture(scope="session")
def byte_level():
    """Build a byte-level tokenizer of 256 bytes, three merges and the given added tokens."""

    def build(*added: AddedToken, prefix_space: bool = False) -> tokenizers.Tokenizer:
        vocabulary = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
        merges = [("a", "b"), ("ab", "c"), ("Ċ", "Ċ")]
        for left, right in merges:
            vocabulary[left + right] = len(vocabulary)
        tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_tokens(list(added))
        return tokenizer

    return build


@pytest.fixture(scope="session")
def chat_tokenizer(byte_level):
    """A byte-level tokenizer with ChatML's two special tokens."""
    markers = [AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")]
    return byte_level(*markers)
