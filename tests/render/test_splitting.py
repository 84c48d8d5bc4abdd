"""Cutting before special tokens, against the library on tokenizers made to trip it."""

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from tests.support.soak import examples
from warmturn.errors import InvalidRequest
from warmturn.render import Tokenizer
from warmturn.render.splitting import MarkerSplitter


def _splitter(*tokens: AddedToken, normalizer_keeps_text: bool = True) -> MarkerSplitter:
    return MarkerSplitter(tokens, normalizer_keeps_text=normalizer_keeps_text)


def _raw(text: str, **flags: bool) -> AddedToken:
    return AddedToken(text, normalized=False, **flags)


def _late(text: str, **flags: bool) -> AddedToken:
    return AddedToken(text, normalized=True, **flags)


def test_a_text_is_cut_before_each_marker():
    splitter = _splitter(_raw("<|im_start|>"), _raw("<|im_end|>"))
    assert splitter.split("x<|im_start|>user\nHi<|im_end|>\n") == [
        "x",
        "<|im_start|>user\nHi",
        "<|im_end|>\n",
    ]


def test_a_text_without_markers_is_one_segment():
    splitter = _splitter(_raw("<|im_start|>"))
    assert splitter.split("<|im_star") == ["<|im_star"]
    assert splitter.split("") == [""]
    assert splitter.split("<|im_start|>") == ["<|im_start|>"]


def test_the_longest_token_wins_at_one_place():
    splitter = _splitter(_raw("<a"), _raw("<a><b>"), _raw("<b>"))
    assert splitter.split("<a><b><b>") == ["<a><b>", "<b>"]
    assert splitter.split("<a><b") == ["<a><b"]


def test_the_leftmost_token_hides_one_that_overlaps_it():
    # "x<a" is no marker, since it begins with a letter, yet the library takes it first.
    assert _splitter(_raw("<a>"), _raw("x<a")).split("_<a>x<a><a>") == ["_", "<a>x<a>", "<a>"]


@pytest.mark.parametrize("token", ["\n\n", "▁▁", "  <a>", "a<b>", "_x", "---"])
def test_tokens_of_spaces_and_of_words_are_no_markers(token):
    assert not _splitter(_raw(token)).has_markers


@pytest.mark.parametrize("flag", ["lstrip", "single_word"])
def test_a_token_that_looks_to_its_left_is_no_marker(flag):
    assert not _splitter(_raw("<a>", **{flag: True})).has_markers


def test_a_token_that_looks_to_its_right_is_a_marker():
    assert _splitter(_raw("<a>", rstrip=True)).split("x <a> y") == ["x ", "<a> y"]


def test_normalised_tokens_are_markers_only_where_the_normaliser_keeps_the_text():
    assert _splitter(_late("<a>")).split("x<a>") == ["x", "<a>"]
    assert not _splitter(_late("<a>"), normalizer_keeps_text=False).has_markers


def test_raw_tokens_are_found_before_normalised_ones():
    # Leftmost would be the late "<x<a", but the raw "<a>" has already split the text.
    assert _splitter(_raw("<a>"), _late("<x<a")).split("<x<a>") == ["<x", "<a>"]


def test_normalised_tokens_do_not_cut_beside_raw_tokens_that_look_around():
    splitter = _splitter(_raw("<a>", rstrip=True), _late("<b>"))
    assert splitter.split("<b><a><b>") == ["<b>", "<a><b>"]


ALPHABET = "<>abA_ \n▁"

# Markers, tokens that overlap them, and tokens that are none.
_MARKERS = ["<a>", "<b>", "<ab>", "<<a", "<A>", "<a><b>"]
_OTHERS = ["<a", "a>", "b<a", ">", "ab", "_<b>", " <a>", "<b> ", "\n", "\n\n", "▁▁", " "]


def _added(contents: list[str], *, rare: st.SearchStrategy[bool]) -> st.SearchStrategy[AddedToken]:
    return st.builds(
        AddedToken,
        st.sampled_from(contents),
        normalized=st.booleans(),
        special=st.booleans(),
        lstrip=rare,
        rstrip=rare,
        single_word=rare,
    )


_RARE = st.sampled_from([False, False, False, True])
_ADDED = st.builds(
    lambda markers, others: markers + others,
    st.lists(_added(_MARKERS, rare=st.just(False)), min_size=1, max_size=2),
    st.lists(_added(_MARKERS + _OTHERS, rare=_RARE), max_size=4),
)
_TEXTS = st.lists(
    st.one_of(st.sampled_from(_MARKERS + _OTHERS), st.text(ALPHABET, max_size=3)),
    min_size=2,
    max_size=10,
).map("".join)

# Not among them: `Strip`. It can leave nothing of a token, and the library then never ends.
NORMALIZERS = {
    "none": None,
    "empty": normalizers.Sequence([]),
    "lower": normalizers.Lowercase(),
    "NFC": normalizers.NFC(),
    "llama": normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
}
PRE_TOKENIZERS = {
    "none": None,
    "byte level": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "byte level, prefix": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "metaspace first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "metaspace always": pre_tokenizers.Metaspace(prepend_scheme="always"),
    "metaspace never": pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
    "split then metaspace": pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace(prepend_scheme="first")]
    ),
    "whitespace": pre_tokenizers.Whitespace(),
}


def _merging_model() -> models.BPE:
    """Merges across every kind of character, so that a wrong cut changes ids."""
    characters = [*ALPHABET, "Ġ", "Ċ", "â", "ĸ", "ģ"]
    pairs = [(x, y) for x in "<ab>▁Ġ \nĊ_" for y in "<ab>▁Ġ \nĊ_"]
    vocabulary = {char: index for index, char in enumerate(dict.fromkeys(characters))}
    for left, right in pairs:
        vocabulary.setdefault(left + right, len(vocabulary))
    return models.BPE(vocab=vocabulary, merges=pairs)


@settings(max_examples=examples(400), deadline=None)
@given(
    added=_ADDED,
    normalizer=st.sampled_from(sorted(NORMALIZERS)),
    pre_tokenizer=st.sampled_from(sorted(PRE_TOKENIZERS)),
    texts=st.lists(_TEXTS, min_size=5, max_size=5),
)
def test_segments_encode_to_the_ids_of_the_whole_text(added, normalizer, pre_tokenizer, texts):
    library = tokenizers.Tokenizer(_merging_model())
    if NORMALIZERS[normalizer] is not None:
        library.normalizer = NORMALIZERS[normalizer]
    if PRE_TOKENIZERS[pre_tokenizer] is not None:
        library.pre_tokenizer = PRE_TOKENIZERS[pre_tokenizer]
    library.add_tokens(added)
    ours = Tokenizer(library)
    for text in texts:
        assert _ids(ours, text) == _library_ids(library, text)


def _library_ids(library, text):
    """None where the library panics: tokens that take white space may overlap those made of it."""
    try:
        return library.encode(text, add_special_tokens=False).ids
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


def _ids(tokenizer, text):
    try:
        return tokenizer.encode(text).tolist()
    except InvalidRequest:
        return None


def test_a_text_the_library_panics_on_is_refused():
    library = tokenizers.Tokenizer(_merging_model())
    library.add_tokens([_raw("<a>", rstrip=True), _raw(" ", lstrip=True)])
    text = "<a>   <b>"
    assert _library_ids(library, text) is None
    with pytest.raises(InvalidRequest, match="cannot split this text"):
        Tokenizer(library).encode(text)
