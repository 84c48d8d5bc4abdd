"""The tokenizer inside a GGUF file, rebuilt for the `tokenizers` library."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers.processors import TemplateProcessing

from warmturn.errors import InvalidInput, UnsupportedModel

__all__ = ["special_token", "tokenizer_of"]

CONTROL, USER_DEFINED = 3, 4
"""Token types of GGUF whose text is never split."""

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
"""How these two families cut text into words; they differ in how they group digits."""


def tokenizer_of(path: Path, fields: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer described by a GGUF file's `fields`.

    Byte-level BPE with a known way of cutting words; anything else is `UnsupportedModel`.
    """
    kind = fields.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise UnsupportedModel(f"{path}: tokenizer {kind!r} is not supported, only 'gpt2' BPE")
    words = fields.get("tokenizer.ggml.pre", "default")
    tokenizer = Tokenizer(_model(path, fields, ignore_merges=words == "llama-bpe"))
    tokenizer.pre_tokenizer = _pre_tokenizer(path, words)
    tokenizer.decoder = decoders.ByteLevel()
    if words == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    _add_special_tokens(tokenizer, fields)
    bos = special_token(fields, "bos")
    if fields.get("tokenizer.ggml.add_bos_token") and bos is not None:
        tokenizer.post_processor = TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


def special_token(fields: Mapping[str, Any], name: str) -> str | None:
    """Return the text of GGUF's special token `name` (bos, eos, padding, unknown)."""
    token_id = fields.get(f"tokenizer.ggml.{name}_token_id")
    return None if token_id is None else str(fields["tokenizer.ggml.tokens"][token_id])


def _model(path: Path, fields: Mapping[str, Any], *, ignore_merges: bool) -> models.BPE:
    for name in ("tokens", "token_type", "merges"):
        if f"tokenizer.ggml.{name}" not in fields:
            raise InvalidInput(f"{path} has no field 'tokenizer.ggml.{name}'")
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(fields["tokenizer.ggml.tokens"])}
    return models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges)


def _pre_tokenizer(path: Path, words: str) -> pre.PreTokenizer:
    match words:
        case "default" | "gpt-2":
            return pre.ByteLevel(add_prefix_space=False)
        case "smollm":
            return pre.Sequence(
                [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]
            )
        case "llama-bpe" | "qwen2":
            pattern = LLAMA3_WORDS if words == "llama-bpe" else QWEN2_WORDS
            byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=False)
            return pre.Sequence([pre.Split(Regex(pattern), "isolated"), byte_level])
    raise UnsupportedModel(
        f"{path}: pre-tokenizer '{words}' is not supported; "
        "supported: default, gpt-2, smollm, llama-bpe, qwen2"
    )


def _add_special_tokens(tokenizer: Tokenizer, fields: Mapping[str, Any]) -> None:
    kinds = list(
        zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"], strict=False)
    )
    for wanted, special in ((CONTROL, True), (USER_DEFINED, False)):
        tokens = [
            AddedToken(text, special=special, normalized=False)
            for text, kind in kinds
            if kind == wanted
        ]
        tokenizer.add_special_tokens(tokens) if special else tokenizer.add_tokens(tokens)
