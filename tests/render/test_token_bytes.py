"""Bytes of single tokens, for the two decoders that make them knowable."""

import pytest
import tokenizers
from tokenizers import decoders, models

from warmturn.render.token_bytes import TokenBytes

WORDS = ["▁a", "b", "<0x0A>", "<0xC3>", "Ġa", "Ã", "日"]
LLAMA = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])


def _bytes_of(decoder, token):
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    library = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="b"))
    library.add_special_tokens(["<▁x>", "a b"])
    if decoder is not None:
        library.decoder = decoder
    known = TokenBytes(library)
    token_id = library.token_to_id(token)
    return known.of(token_id), known.is_byte_token(token_id)


@pytest.mark.parametrize(
    ("token", "answer"),
    [
        ("▁a", (b" a", False)),
        ("日", ("日".encode(), False)),
        ("<0x0A>", (b"\n", True)),
        ("<0xC3>", (b"\xc3", True)),
        ("<▁x>", ("<▁x>".encode(), False)),  # an added token stands for its own text
    ],
)
def test_word_pieces_stand_for_text_and_byte_tokens_for_a_byte(token, answer):
    assert _bytes_of(LLAMA, token) == answer


@pytest.mark.parametrize(
    ("token", "expected"),
    [("Ġa", b" a"), ("Ã", b"\xc3"), ("a b", b"a b"), ("日", "日".encode())],
)
def test_characters_of_byte_level_tokens_are_bytes(token, expected):
    assert _bytes_of(decoders.ByteLevel(), token) == (expected, False)


def test_the_spelling_of_a_byte_is_text_where_there_is_no_byte_fallback():
    assert _bytes_of(decoders.Metaspace(), "<0x0A>") == (b"<0x0A>", False)


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.CTC()])
def test_other_decoders_do_not_tell_the_bytes_of_one_token(decoder):
    assert _bytes_of(decoder, "b") == (None, False)


def test_the_byte_alphabet_is_the_librarys():
    from tokenizers.pre_tokenizers import ByteLevel

    from warmturn.render.token_bytes import _BYTE_OF

    assert set(_BYTE_OF) == set(ByteLevel.alphabet())
    assert sorted(_BYTE_OF.values()) == list(range(256))
    for byte in range(0x80):  # ASCII is its own UTF-8 form, so the library can be asked
        ((stand_in, _),) = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(
            chr(byte)
        )
        assert _BYTE_OF[stand_in] == byte
