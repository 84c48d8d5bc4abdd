"""Where a tokenizer always splits: read off its pattern, and tried on every short text."""

import re
from itertools import product

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from warmturn.render.word_borders import splits_behind_words

KNOWN = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "possessive": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
        r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "han": (
        r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Ll}\p{Lu}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""Of families of models, as their tokenizer files have them."""

UNREAD = {"possessive"}
"""It asks for the end of the text."""

CROSSING = {
    "a word takes the blank behind it": r"\p{L}+ ?|\s+|.",
    "blanks inside": r"\p{L}+(?: \p{L}+)*|\s+|.",
    "any character": r"\p{L}+.|\s+",
    "a negated class": r"[^\p{L}]+|\p{L}+",
    "a look at what follows": r"\p{L}+(?!\s)|\s+|.",
    "a range": r"[!-~ ]+|\s+",
    "no rule for a blank": r"\p{L}+|[^\s\p{L}]+",
    "blanks only before the end": r"\p{L}+|[^\s\p{L}]+|\s+(?!\S)",
    "a look behind": r"(?<=a) |\p{L}+|\s+",
    "a word border": r"\b\p{L}+|\s+",
    "two blanks at least": r"\p{L}+|[^\s\p{L}]+|\s{2,}",
    "a look over two characters": r"\p{L}+|[^\s\p{L}]+|\s+(?!\S\S)|\s+",
}


def _tokenizer(pattern: str, behavior: str = "isolated", *, invert: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior, invert=invert)
    return tokenizer


@pytest.mark.parametrize("name", KNOWN)
def test_the_patterns_of_known_models_split_behind_words(name):
    assert splits_behind_words(_tokenizer(KNOWN[name])) is (name not in UNREAD)


@pytest.mark.parametrize("name", KNOWN.keys() - UNREAD)
def test_every_short_text_splits_at_its_borders_as_was_read(name):
    split = pre_tokenizers.Split(Regex(KNOWN[name]), "isolated")
    for letters in product("aS1.' \n中", repeat=5):
        text = "".join(letters)
        parts = re.split(r"(?<=[!-~])(?= )", text)
        if len(parts) > 1:
            apart = [piece for part in parts for piece, _ in split.pre_tokenize_str(part)]
            assert [piece for piece, _ in split.pre_tokenize_str(text)] == apart


@pytest.mark.parametrize("name", CROSSING)
def test_a_pattern_that_may_go_on_behind_a_word_is_not_relied_on(name):
    assert not splits_behind_words(_tokenizer(CROSSING[name]))


@pytest.mark.parametrize(
    ("behavior", "invert", "expected"),
    [
        ("isolated", False, True),
        ("removed", True, True),
        ("removed", False, False),
        ("merged_with_previous", False, False),
        ("merged_with_next", False, False),
        ("contiguous", False, False),
    ],
)
def test_only_behaviours_that_keep_matches_apart_count(behavior, invert, expected):
    tokenizer = _tokenizer(KNOWN["cl100k"], behavior, invert=invert)
    assert splits_behind_words(tokenizer) is expected


def test_the_steps_before_may_not_join_what_the_last_one_splits():
    tokenizer = _tokenizer(KNOWN["gpt2"])
    digits, gpt2 = pre_tokenizers.Digits(individual_digits=True), tokenizer.pre_tokenizer
    joins = pre_tokenizers.Split(Regex("[a-z ]+"), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for steps, expected in [
        ([digits, byte_level], True),
        ([gpt2, bytes_only], True),
        ([joins, gpt2], False),
        ([digits, bytes_only], False),
        ([bytes_only, gpt2], False),
        ([pre_tokenizers.Metaspace(), gpt2], False),
        ([pre_tokenizers.ByteLevel(add_prefix_space=True)], False),
    ]:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        assert splits_behind_words(tokenizer) is expected


def test_other_models_and_normalizers_are_not_relied_on():
    plain = _tokenizer(KNOWN["cl100k"])
    unigram = Tokenizer(models.Unigram([("a", 0.0)], unk_id=0))
    unigram.pre_tokenizer = plain.pre_tokenizer
    assert not splits_behind_words(unigram)
    plain.normalizer = normalizers.Sequence([normalizers.NFC()])
    assert splits_behind_words(plain)
    plain.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])
    assert not splits_behind_words(plain)
    assert not splits_behind_words(Tokenizer(models.BPE(vocab={"a": 0}, merges=[])))


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (AddedToken("<|x|>", special=True), True),
        (AddedToken("<|x|>", lstrip=True), True),
        (AddedToken("two words"), False),
        (AddedToken("<|x|>", rstrip=True), False),
        (AddedToken("x", single_word=True), False),
    ],
)
def test_an_added_token_may_not_see_across_a_border(token, expected):
    tokenizer = _tokenizer(KNOWN["cl100k"])
    tokenizer.add_tokens([token])
    assert splits_behind_words(tokenizer) is expected
