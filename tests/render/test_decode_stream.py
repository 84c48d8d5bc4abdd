"""Streams hold back exactly what the next token may still change."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from warmturn.render import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@pytest.fixture
def byte_tokenizer(chat_tokenizer):
    return Tokenizer(chat_tokenizer)


@pytest.fixture
def llama_like():
    """Word pieces with a token for each byte, decoded as Llama 2 decodes them."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocabulary |= {"▁": 256, "▁a": 257, "b": 258, "</s>": 259}
    library = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    library.add_special_tokens(["</s>"])
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return Tokenizer(library)


def _pushed(stream, ids):
    return [stream.push([token_id]) for token_id in ids]


def test_a_character_of_four_bytes_comes_out_whole(byte_tokenizer):
    ids = byte_tokenizer.encode("👩").tolist()
    assert _pushed(byte_tokenizer.decode_stream(), ids) == ["", "", "", "👩"]


def test_an_incomplete_character_comes_out_at_the_end_only(byte_tokenizer):
    stream = byte_tokenizer.decode_stream()
    assert _pushed(stream, byte_tokenizer.encode("a👩").tolist()[:-1]) == ["a", "", "", ""]
    assert stream.flush() == REPLACEMENT
    assert stream.flush() == ""


def test_a_byte_that_begins_nothing_is_replaced_at_once(byte_tokenizer):
    stream = byte_tokenizer.decode_stream()
    first, second = byte_tokenizer.encode("é").tolist()
    assert stream.push([second]) == REPLACEMENT
    assert stream.push([first]) == ""
    assert stream.push(byte_tokenizer.encode("x").tolist()) == REPLACEMENT + "x"


def test_a_replacement_character_in_the_text_is_text(byte_tokenizer):
    stream = byte_tokenizer.decode_stream()
    assert "".join(_pushed(stream, byte_tokenizer.encode(REPLACEMENT).tolist())) == REPLACEMENT


def test_special_tokens_are_skipped_or_shown(byte_tokenizer):
    ids = byte_tokenizer.encode("ab<|im_end|>c").tolist()
    assert byte_tokenizer.decode_stream().push(ids) == "abc"
    assert byte_tokenizer.decode_stream(skip_special_tokens=False).push(ids) == "ab<|im_end|>c"


def test_only_the_first_space_of_a_reply_is_dropped(llama_like):
    stream = llama_like.decode_stream()
    assert _pushed(stream, [257, 257, 256, 257]) == ["a", " a", " ", " a"]


def test_a_skipped_token_does_not_count_as_the_first(llama_like):
    stream = llama_like.decode_stream()
    assert _pushed(stream, [257, 259, 257]) == ["a", "", " a"]
    assert llama_like.decode([257, 259, 257]) == "a a"


def test_a_run_of_byte_tokens_waits_for_its_end(llama_like):
    stream = llama_like.decode_stream()
    # The decoder judges the run as a whole: one bad byte makes all of it U+FFFD.
    assert _pushed(stream, [0xC3, 0xA9, 258]) == ["", "", "éb"]
    assert _pushed(stream, [0xC3, 0xA9, 0xFF, 258]) == ["", "", "", REPLACEMENT * 3 + "b"]


def test_a_run_of_byte_tokens_at_the_end_is_flushed(llama_like):
    stream = llama_like.decode_stream()
    assert stream.push([258, 0xC3]) == ""
    assert stream.flush() == "b" + REPLACEMENT


def test_ids_outside_the_vocabulary_are_nothing(llama_like, byte_tokenizer):
    for tokenizer in (llama_like, byte_tokenizer):
        assert tokenizer.decode_stream().push([tokenizer.vocab_size + 3]) == ""


def test_a_window_does_not_end_inside_a_character():
    library = _whole_tokens("byte level, nested")
    stream = Tokenizer(library).decode_stream()
    ids = [library.token_to_id(piece) for piece in ["a", "Ã", "©", "Ã"]]
    assert _pushed(stream, ids) == ["a", "", "é", ""]
    assert stream.flush() == REPLACEMENT


_PIECES = [
    "a", "b", "▁", "▁a", "##b", "##", "a</w>", "</w>", ".", "'", "Ġ", "Ġa", "Ã", "©", "ï", "¿", "½",
    "<0xC3>", "<0xA9>", "<0xFF>", "é", " ", "",
]  # fmt: skip

DECODERS = {
    "none": None,
    "byte level": decoders.ByteLevel(),
    "byte level, nested": decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()]),
    "metaspace": decoders.Metaspace(),
    "metaspace, never": decoders.Metaspace(prepend_scheme="never"),
    "word pieces": decoders.WordPiece(),
    "suffix": decoders.BPEDecoder(),
    "byte fallback": decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]),
    "llama": decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Strip(" ", 1, 0)]
    ),
}


def _whole_tokens(decoder: str) -> tokenizers.Tokenizer:
    vocabulary = {piece: index for index, piece in enumerate(_PIECES)}
    library = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    library.add_special_tokens(["<x>", "<y z>"])
    if DECODERS[decoder] is not None:
        library.decoder = DECODERS[decoder]
    return library


@given(
    decoder=st.sampled_from(sorted(DECODERS)),
    ids=st.lists(st.integers(0, len(_PIECES) + 3), max_size=12),
    skip=st.booleans(),
)
def test_pieces_join_to_the_whole_for_every_decoder(decoder, ids, skip):
    library = _whole_tokens(decoder)
    stream = Tokenizer(library).decode_stream(skip_special_tokens=skip)
    joined = "".join(_pushed(stream, ids)) + stream.flush()
    assert joined == library.decode(ids, skip_special_tokens=skip)
