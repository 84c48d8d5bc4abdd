import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.support.tiny_gguf import TEMPLATE, vocabulary, write_gguf
from tests.support.tiny_models import save_tiny_model
from warmturn.engine.gguf_convert import convert_gguf
from warmturn.errors import InvalidInput, UnsupportedModel


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def model_dir(request, tmp_path_factory):
    """A tiny llama whose weights are exact in bf16, with the tiny vocabulary."""
    directory = tmp_path_factory.mktemp("model")
    save_tiny_model(
        directory, "llama", vocab_size=len(vocabulary()), tie_word_embeddings=request.param
    )
    tensors = load_file(directory / "model.safetensors")
    exact = {name: tensor.bfloat16().float() for name, tensor in tensors.items()}
    save_file(exact, directory / "model.safetensors")
    return directory


def converted(tmp_path, model_dir, **options):
    write_gguf(tmp_path / "tiny.gguf", model_dir, **options)
    target = tmp_path / "out"
    target.mkdir()
    convert_gguf(tmp_path / "tiny.gguf", target)
    return target


def test_every_weight_comes_back_bit_for_bit(tmp_path, model_dir):
    """Queries and keys included: their rows are stored in another order in GGUF."""
    target = converted(tmp_path, model_dir)
    before = load_file(model_dir / "model.safetensors")
    after = load_file(target / "model.safetensors")
    assert after.keys() == before.keys()
    for name, tensor in after.items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor.float(), before[name]), name


def test_the_config_says_what_the_file_said(tmp_path, model_dir):
    target = converted(tmp_path, model_dir)
    config = json.loads((target / "config.json").read_text())
    original = json.loads((model_dir / "config.json").read_text())
    for name in (
        "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps",
        "tie_word_embeddings",
    ):  # fmt: skip
        assert config[name] == original[name], name
    generation = json.loads((target / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    tokenizer = json.loads((target / "tokenizer_config.json").read_text())
    assert tokenizer["chat_template"] == TEMPLATE
    assert (tokenizer["bos_token"], tokenizer["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert "unk_token" not in tokenizer


def test_the_tokenizer_cuts_special_tokens_digits_and_words(tmp_path, model_dir):
    tokenizer = Tokenizer.from_file(str(converted(tmp_path, model_dir) / "tokenizer.json"))
    text = "<|im_start|>in the 12é<|im_end|>"
    assert tokenizer.encode(text).tokens == [
        "<|im_start|>", "i", "n", "Ġthe", "Ġ", "1", "2", "Ã", "©", "<|im_end|>",
    ]  # fmt: skip
    assert tokenizer.decode(tokenizer.encode(text).ids) == "in the 12é"
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("pre", "digits"),
    [
        ("default", ["12", "12"]),
        ("gpt-2", ["12", "12"]),
        ("smollm", ["1", "2", "1", "2"]),
        ("llama-bpe", ["12", "1", "2"]),  # runs of at most three
        ("qwen2", ["1", "2", "1", "2"]),
    ],
)
def test_each_family_groups_digits_its_own_way(tmp_path, pre, digits):
    save_tiny_model(tmp_path, "llama", vocab_size=len(vocabulary()))
    tokenizer = Tokenizer.from_file(str(converted(tmp_path, tmp_path, pre=pre) / "tokenizer.json"))
    assert tokenizer.encode(" the 1212").tokens == ["Ġthe", "Ġ", *digits]


def test_a_begin_token_is_added_where_the_file_asks_for_it(tmp_path):
    save_tiny_model(tmp_path, "llama", vocab_size=len(vocabulary()))
    target = converted(tmp_path, tmp_path, changes={"tokenizer.ggml.add_bos_token": True})
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    assert tokenizer.encode("h").tokens == ["<|im_start|>", "h"]
    assert tokenizer.encode("h", add_special_tokens=False).tokens == ["h"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"changes": {"general.architecture": "gemma"}}, "architecture 'gemma'"),
        ({"changes": {"llama.expert_count": 8}}, "mixture of experts"),
        ({"changes": {"llama.rope.scaling.type": "yarn"}}, "rope scaling"),
        ({"changes": {"llama.rope.dimension_count": 4}}, "a part of each head"),
        ({"changes": {"tokenizer.ggml.model": "llama"}}, "tokenizer 'llama'"),
        ({"pre": "deepseek-llm"}, "pre-tokenizer 'deepseek-llm'"),
        ({"extra_tensor": "rope_freqs.weight"}, "rope scaling"),
        ({"extra_tensor": "blk.0.attn_q.bias"}, r"tensor 'blk\.0\.attn_q\.bias'"),
    ],
)
def test_what_would_come_out_wrong_is_named(tmp_path, options, named):
    save_tiny_model(tmp_path, "llama", vocab_size=len(vocabulary()))
    with pytest.raises(UnsupportedModel, match=named):
        converted(tmp_path, tmp_path, **options)


def test_a_missing_field_is_named(tmp_path):
    save_tiny_model(tmp_path, "llama", vocab_size=len(vocabulary()))
    with pytest.raises(InvalidInput, match=r"no field 'llama\.block_count'"):
        converted(tmp_path, tmp_path, changes={"llama.block_count": None})


@pytest.mark.parametrize("kept_share", [0.0, 0.02, 0.5, 0.97])
def test_a_truncated_file_is_one_clear_line(tmp_path, kept_share):
    save_tiny_model(tmp_path, "llama", vocab_size=len(vocabulary()))
    path = tmp_path / "tiny.gguf"
    write_gguf(path, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept_share)])
    with pytest.raises(InvalidInput, match="cannot be read as GGUF") as raised:
        convert_gguf(path, tmp_path)
    assert "\n" not in str(raised.value)


def test_weights_are_rounded_to_the_nearest_bfloat16(tmp_path):
    save_tiny_model(tmp_path, "llama", vocab_size=len(vocabulary()))
    before = load_file(tmp_path / "model.safetensors")["model.norm.weight"].numpy()
    after = load_file(converted(tmp_path, tmp_path) / "model.safetensors")["model.norm.weight"]
    assert np.abs(after.float().numpy() - before).max() <= 2**-8  # half a step between 1 and 2
