"""Encoding and decoding, against the `tokenizers` library on real and on tiny tokenizers."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from tests.support.soak import examples
from warmturn.errors import InvalidInput, InvalidRequest
from warmturn.render import Tokenizer

REAL = ["smollm2", "qwen3", "deepseek", "tekken", "llama2"]

_SPECIAL = {
    "smollm2": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<jupyter_text>"],
    "qwen3": ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<|fim_pad|>"],
    "deepseek": [
        "<\uff5cbegin▁of▁sentence\uff5c>",
        "<\uff5cUser\uff5c>",
        "<\uff5cAssistant\uff5c>",
        "</think>",
        "\uff5cDSML\uff5c",
    ],
    "tekken": ["[INST]", "[/INST]", "<s>", "<SPECIAL_999>", "<SPECIAL_20>"],
    "llama2": ["<s>", "</s>", "<unk>", "[INST]", "<<SYS>>"],
}
_FRAGMENTS = [
    "<|im_", "<|", "|>", "<\uff5cUser", "\uff5c>", "<", ">", "\n", "\n\n", " ", "   ", "\t", "\r\n",
    "user", "assistant", "Hello", " the", "a b", ". \n", "'s ", "! ", " .", "jsonp", "12", "345", "def f(x):\n    return x[0]}}",
    "e\u0301", "é", "\u212b", "中国", "東京タワー", "👩\u200d💻", "🇫🇷", "\u0000", "▁", "...", "\ufb01", "<0x0A>",
]  # fmt: skip


def _texts(name: str) -> st.SearchStrategy[str]:
    known = st.sampled_from(_SPECIAL[name] + _FRAGMENTS)
    free = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    return st.lists(st.one_of(known, known, free), max_size=24).map("".join)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("name", REAL)
@settings(
    max_examples=examples(250),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_encoding_equals_the_library_on_the_whole_text(name, data, real_tokenizer):
    ours, library = real_tokenizer(name)
    text = data.draw(_texts(name))
    expected = library.encode(text, add_special_tokens=False).ids
    assert ours.is_incremental
    assert ours.is_word_by_word is (name != "llama2")
    assert ours.encode(text).tolist() == expected
    # All segments are known now; the answer must not change.
    assert ours.encode(text).tolist() == expected


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("name", REAL)
@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), skip=st.booleans())
def test_a_stream_gives_the_text_of_all_ids_at_once(name, data, skip, real_tokenizer):
    ours, library = real_tokenizer(name)
    ids = data.draw(
        st.one_of(
            _texts(name).map(lambda text: ours.encode(text).tolist()),
            st.lists(st.integers(0, ours.vocab_size + 5), max_size=20),
            st.lists(st.integers(3, 300), max_size=20),  # bytes, in these vocabularies
        )
    )
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=len(ids), max_size=len(ids)))
    stream = ours.decode_stream(skip_special_tokens=skip)
    pieces, start = [], 0
    for size in sizes:
        pieces.append(stream.push(ids[start : start + size]))
        start += size
    text = library.decode(ids, skip_special_tokens=skip)
    assert "".join(pieces) + stream.flush() == text
    assert ours.decode(ids, skip_special_tokens=skip) == text


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("name", REAL)
def test_the_bytes_of_tokens_join_to_the_text(name, real_tokenizer):
    ours, _ = real_tokenizer(name)
    text = "Grüße, 東京 👩\u200d💻\n  def f(): return 12345"
    joined = b"".join(ours.token_bytes(int(token_id)) for token_id in ours.encode(text))
    assert joined.decode().lstrip(" ") == text


@pytest.mark.network
@pytest.mark.slow
def test_a_turn_encodes_only_its_new_segments(real_tokenizer, monkeypatch):
    ours, _ = real_tokenizer("smollm2")
    encoded = []
    library = ours._backend
    monkeypatch.setattr(ours, "_backend", SimpleNamespace(encode=None), raising=True)
    ours._backend.encode = lambda text, **options: (
        encoded.append(text) or library.encode(text, **options)
    )
    history = "<|im_start|>user\nFirst of this test<|im_end|>\n<|im_start|>assistant\n"
    ours.encode(history)
    encoded.clear()
    ours.encode(history + "A reply<|im_end|>\n<|im_start|>user\nSecond<|im_end|>\n")
    (joined,) = encoded
    assert sorted(joined.split(ours._splitter.separator)) == [
        " reply",
        "<|im_start|>assistant\nA",
        "<|im_start|>user\nSecond",
    ]


def test_ids_come_as_int32_that_the_caller_may_change(chat_tokenizer):
    ours = Tokenizer(chat_tokenizer)
    first = ours.encode("abc")
    assert first.dtype == np.int32
    first[:] = 0
    assert ours.encode("abc").tolist() == chat_tokenizer.encode("abc").ids


def test_an_empty_text_has_no_tokens(chat_tokenizer):
    assert Tokenizer(chat_tokenizer).encode("").tolist() == []


def test_special_tokens_around_the_text_are_added_only_on_request(chat_tokenizer):
    library = tokenizers.Tokenizer.from_str(chat_tokenizer.to_str())
    start = library.token_to_id("<|im_start|>")
    library.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)]
    )
    ours = Tokenizer(library)
    assert ours.encode("a").tolist() == ours.encode("a", add_special_tokens=True).tolist()[1:]
    assert ours.encode("a", add_special_tokens=True)[0] == start


def test_a_lone_surrogate_is_the_callers_mistake(chat_tokenizer):
    with pytest.raises(InvalidRequest, match="surrogate"):
        Tokenizer(chat_tokenizer).encode("<|im_start|>a\ud800")


def test_truncation_and_padding_saved_with_a_tokenizer_are_switched_off(byte_level):
    library = byte_level(AddedToken("<|x|>", special=True))
    library.enable_truncation(2)
    library.enable_padding(length=8)
    assert len(Tokenizer(library).encode("defg<|x|>")) == 5


def test_an_unknown_pre_tokenizer_means_whole_texts(byte_level):
    library = byte_level(AddedToken("<|x|>", special=True))
    library.pre_tokenizer = pre_tokenizers.FixedLength(2)
    ours = Tokenizer(library)
    assert not ours.is_incremental
    assert "FixedLength" in ours.whole_text_reason
    assert ours.encode("abc<|x|>abc").tolist() == library.encode("abc<|x|>abc").ids


def test_a_model_that_drops_merges_means_whole_texts():
    library = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[], dropout=0.5))
    library.add_special_tokens(["<|x|>"])
    assert "random" in Tokenizer(library).whole_text_reason


def test_no_certain_special_token_means_whole_texts(byte_level):
    ours = Tokenizer(byte_level(AddedToken("<mask>", lstrip=True, special=True)))
    assert not ours.is_incremental
    assert "special token" in ours.whole_text_reason
    assert ours.decode(ours.encode("ab  <mask>"), skip_special_tokens=False) == "ab<mask>"


def test_many_threads_get_the_same_ids(chat_tokenizer):
    ours = Tokenizer(chat_tokenizer, cache_bytes=20_000)
    texts = [f"<|im_start|>{'abc' * (i % 37)}{i % 50}<|im_end|>" for i in range(600)]
    expected = [chat_tokenizer.encode(text).ids for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert [ids.tolist() for ids in pool.map(ours.encode, texts)] == expected


def test_the_config_names_the_tokens_that_begin_and_end(chat_tokenizer):
    config = {"eos_token": {"content": "<|im_end|>"}, "bos_token": None, "pad_token": "<|im_end|>"}
    ours = Tokenizer(chat_tokenizer, config)
    assert ours.eos_token == "<|im_end|>"
    assert ours.eos_token_id == ours.vocab_size - 1
    assert ours.bos_token is None
    assert ours.special_token_ids == {ours.token_id("<|im_start|>"), ours.eos_token_id}
    assert ours.special_tokens == {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}


def test_without_a_config_no_end_is_known(chat_tokenizer, tmp_path):
    chat_tokenizer.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert ours.eos_token is None
    assert ours.eos_token_id is None
    assert Tokenizer.from_directory(tmp_path).bos_token is None


def test_a_token_alone_may_be_part_of_a_character(chat_tokenizer):
    ours = Tokenizer(chat_tokenizer)
    first, *_ = ours.encode("é")
    assert ours.token_bytes(int(first)) == b"\xc3"
    assert ours.token_text(int(first)) == "\N{REPLACEMENT CHARACTER}"
    assert ours.token_text(ours.token_id("<|im_end|>")) == "<|im_end|>"


def test_an_id_outside_the_vocabulary_has_no_text(chat_tokenizer):
    ours = Tokenizer(chat_tokenizer)
    assert ours.token_bytes(ours.vocab_size) is None
    assert ours.token_bytes(-1) is None
    assert ours.token_text(ours.vocab_size) == ""


def test_decoding_takes_arrays_and_lists(chat_tokenizer):
    ours = Tokenizer(chat_tokenizer)
    ids = ours.encode("abc<|im_end|>")
    assert ours.decode(ids) == ours.decode(ids.tolist()) == "abc"
    assert ours.decode(ids, skip_special_tokens=False) == "abc<|im_end|>"


def test_a_missing_tokenizer_file_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"no tokenizer\.json in .*save_pretrained"):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize("text", ["{", "{}", '{"model": 3}'])
def test_a_broken_tokenizer_file_is_named(tmp_path, text):
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"tokenizer\.json is not a tokenizer file"):
        Tokenizer.from_file(path)


def test_a_tokenizer_with_word_pieces_has_no_known_bytes():
    library = tokenizers.Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "a": 1, "##b": 2}))
    library.decoder = decoders.WordPiece()
    ours = Tokenizer(library)
    assert ours.token_bytes(2) is None
    assert ours.token_text(1) == "a"
    stream = ours.decode_stream()
    assert [stream.push([1]), stream.push([2]), stream.push([1]), stream.flush()] == [
        "a",
        "b",
        " a",
        "",
    ]
