"""A tokenizer file of a few kilobytes: one token per byte, and ChatML's two markers."""

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers


def write_tiny_tokenizer(directory):
    """Write `tokenizer.json` into `directory` and return its path."""
    vocabulary = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary["ab"] = len(vocabulary)  # so that a reply may be written with two ids or with one
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    markers = ("<|im_start|>", "<|im_end|>", "<s>")
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in markers])
    path = directory / "tokenizer.json"
    tokenizer.save(str(path))
    return path
