"""Mistral's tekken vocabulary as a `tokenizers` file: its ranks are those of BPE merges."""

import base64
import itertools
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

NAMED = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
"""The first special tokens; the others get a number, which no test reads."""


def write_tekken(data: bytes, target: Path) -> None:
    """Write `tokenizer.json` and its config into `target` from the text of a tekken file."""
    tekken = json.loads(data)
    config = tekken["config"]
    num_special = config["default_num_special_tokens"]
    size = config["default_vocab_size"] - num_special
    words = [base64.b64decode(entry["token_bytes"]) for entry in tekken["vocab"][:size]]
    specials = NAMED + [f"<SPECIAL_{number}>" for number in range(len(NAMED), num_special)]
    _tokenizer(words, specials, config["pattern"]).save(str(target / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (target / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")


def _tokenizer(words: list[bytes], specials: list[str], pattern: str) -> Tokenizer:
    letters = _byte_letters()

    def spelled(word: bytes) -> str:
        return "".join(letters[byte] for byte in word)

    vocabulary = {token: n for n, token in enumerate([*specials, *map(spelled, words)])}
    ranks = {word: rank for rank, word in enumerate(words)}
    parts = (_parts(word, rank, ranks) for rank, word in enumerate(words) if len(word) > 1)
    merges = [(spelled(pair[0]), spelled(pair[1])) for pair in parts if len(pair) == 2]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    return tokenizer


def _parts(word: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """Merge the bytes of `word` by the ranks below its own: the last two make the token."""
    parts = [word[i : i + 1] for i in range(len(word))]
    while len(parts) > 2:
        joined = [ranks.get(a + b, rank) for a, b in itertools.pairwise(parts)]
        best = min(joined)
        if best >= rank:
            break
        at = joined.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _byte_letters() -> list[str]:
    """Return the letter that stands for each byte in byte-level vocabularies."""
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in printed)
    shifted = {byte: chr(256 + number) for number, byte in enumerate(others)}
    return [shifted.get(byte, chr(byte)) for byte in range(256)]
