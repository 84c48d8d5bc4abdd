"""Texts encoded word by word, against a plain encode of the whole."""

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from tests.support.soak import examples
from warmturn.render import Tokenizer
from warmturn.render.words import Pieces, Words

_PARTS = st.sampled_from(
    ["a", "ab", "abc", " ", "  ", "\n", "\n\n", ".", "é", "e\u0301", "中", "<|sep|>"]
)


@pytest.fixture
def library(byte_level):
    """A tokenizer with a separator."""
    return byte_level(AddedToken("<|sep|>", special=True))


@pytest.fixture
def words_of(library):
    """Build `Words` on the library, with a record of what was encoded."""

    def build():
        calls = []

        def encode(texts):
            calls.append(texts)
            return [np.array(one.ids, np.int32) for one in library.encode_batch(texts)]

        separator_id = library.token_to_id("<|sep|>")
        return Words(encode, separator="<|sep|>", separator_id=separator_id), calls

    return build


@pytest.fixture
def pieces_of(library):
    """Build `Pieces` of words with room for so many, and a record of what was encoded."""

    def build(capacity):
        calls = []

        def encode(texts):
            calls.extend(texts)
            return [np.array(one.ids, np.int32) for one in library.encode_batch(texts)]

        return Pieces(encode, border=re.compile("(?<=[!-~])(?= )"), capacity=capacity), calls

    return build


def test_a_word_is_encoded_once(words_of, library):
    words, calls = words_of()
    first, second = words.encode(["abc ab abc", "abc ab!"])
    assert first.dtype == np.int32
    assert first.tolist() == library.encode("abc ab abc").ids
    assert second.tolist() == library.encode("abc ab!").ids
    (joined,) = calls[0]
    assert sorted(joined.split("<|sep|>")) == [" ab", " ab!", " abc", "abc"]
    calls.clear()
    words.encode(["abc ab!"])
    assert calls == []


def test_of_a_text_in_which_a_clock_moved_only_the_clock_is_encoded(words_of, library):
    words, calls = words_of()
    words.encode(["You are kind, always. Now 10:01. Be short."])
    calls.clear()
    moved = "You are kind, always. Now 10:02. Be short."
    assert words.encode([moved])[0].tolist() == library.encode(moved).ids
    assert calls == [[" 10:02."]]


def test_the_answer_is_the_same_where_a_text_has_the_separator_in_it(words_of, library):
    words, calls = words_of()
    text = "abc<|sep|>a ab"
    assert words.encode([text])[0].tolist() == library.encode(text).ids
    assert len(calls) == 2


def test_no_texts_and_empty_texts_have_no_ids(words_of):
    words, _ = words_of()
    assert words.encode([]) == []
    assert words.encode([""])[0].tolist() == []


def test_much_that_is_new_goes_in_batches(words_of, library):
    words, calls = words_of()
    text = " ".join(f"a{number}" for number in range(20_000))
    assert words.encode([text])[0].tolist() == library.encode(text).ids
    assert len(calls) == 1
    assert max(map(len, calls[0])) < 4 * 16_384


def test_what_is_remembered_is_bounded_and_the_answer_is_not(pieces_of, library):
    pieces, _ = pieces_of(8)
    text = " ".join(f"a{number}" for number in range(50))
    for _ in range(2):
        assert pieces.encode([text])[0].tolist() == library.encode(text).ids
    for number in range(50):
        pieces.encode([f"a{number} b{number}"])
        assert len(pieces) <= 8
    assert pieces.encode(["a49 b49"])[0].tolist() == library.encode("a49 b49").ids


def test_a_piece_met_again_outlives_those_that_are_not(pieces_of):
    pieces, calls = pieces_of(8)
    for number in range(20):
        pieces.encode([f"abc ab{number}"])
    assert calls.count("abc") == 1


def test_a_long_piece_is_not_kept(pieces_of):
    pieces, _ = pieces_of(8)
    pieces.encode(["a" * 1000, "ab"])
    assert len(pieces) == 1


@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(texts=st.lists(st.lists(_PARTS, max_size=12).map("".join), max_size=4))
def test_ids_equal_those_of_the_whole_text(texts, library, words_of, pieces_of):
    words, (pieces, _) = words_of()[0], pieces_of(6)
    expected = [library.encode(text).ids for text in texts]
    for encoder in (words, words, pieces, pieces):
        assert [ids.tolist() for ids in encoder.encode(texts)] == expected


def test_a_tokenizer_goes_word_by_word_only_where_it_splits_behind_words(byte_level):
    marker = AddedToken("<|x|>", special=True)
    assert Tokenizer(byte_level(marker)).is_word_by_word
    assert not Tokenizer(byte_level(marker, prefix_space=True)).is_word_by_word
    assert not Tokenizer(byte_level(AddedToken("<|x|>", special=False))).is_word_by_word
