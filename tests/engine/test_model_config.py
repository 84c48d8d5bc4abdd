import json

import pytest

from warmturn.engine.model_config import Llama3Scaling, ModelConfig
from warmturn.errors import InvalidInput, UnsupportedModel

LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.fixture
def read(tmp_path):
    """Write config.json with changes (None removes a field) and read it."""

    def of(generation=None, **changes):
        values = {k: v for k, v in (LLAMA | changes).items() if v is not None}
        (tmp_path / "config.json").write_text(json.dumps(values))
        if generation is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        return ModelConfig.from_directory(tmp_path)

    return of


def test_fields_are_read_and_absent_ones_get_their_meaning(read):
    config = read()
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (2, 4, 2)
    assert config.head_dim == 16
    assert config.rope_theta == 10_000.0
    assert config.rope_scaling is None
    assert not config.tie_word_embeddings
    assert read(num_key_value_heads=None).num_kv_heads == 4


@pytest.mark.parametrize(
    ("model_type", "qkv_bias", "output_bias", "qk_norm"),
    [
        ("llama", False, False, False),
        ("mistral", False, False, False),
        ("qwen2", True, False, False),
        ("qwen3", False, False, True),
    ],
)
def test_each_family_has_its_own_layers(read, model_type, qkv_bias, output_bias, qk_norm):
    config = read(model_type=model_type)
    found = (config.has_qkv_bias, config.has_output_bias, config.has_qk_norm)
    assert found == (qkv_bias, output_bias, qk_norm)


def test_attention_bias_of_llama_is_on_all_projections(read):
    config = read(attention_bias=True, mlp_bias=True)
    assert config.has_qkv_bias
    assert config.has_output_bias
    assert config.has_mlp_bias


def test_qwen3_without_head_dim_means_128(read):
    assert read(model_type="qwen3").head_dim == 128
    assert read(model_type="qwen3", head_dim=32).head_dim == 32


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}},
    ],
)
def test_both_forms_of_llama3_scaling_are_the_same(read, fields):
    config = read(**fields)
    assert config.rope_scaling == Llama3Scaling(**LLAMA3)
    assert config.rope_theta == 5e5


def test_default_rope_parameters_bring_only_theta(read):
    config = read(rope_parameters={"rope_type": "default", "rope_theta": 123.0})
    assert config.rope_theta == 123.0
    assert config.rope_scaling is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "gemma3"}, "model_type 'gemma3' is not supported; supported: llama"),
        ({"model_type": "mistral", "sliding_window": 4096}, r"sliding window .*4096 tokens"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8}, "sliding"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type 'linear'"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"quantization_config": {"bits": 4}}, "quantised weights"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
    ],
)
def test_what_would_be_computed_wrongly_is_named(read, changes, named):
    with pytest.raises(UnsupportedModel, match=named) as raised:
        read(**changes)
    assert "config.json" in str(raised.value)


def test_a_sliding_window_that_is_switched_off_is_fine(read):
    read(model_type="qwen2", use_sliding_window=False, sliding_window=4096)
    read(model_type="mistral", sliding_window=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "has no field 'hidden_size'"),
        ({"max_position_embeddings": None}, "has no field 'max_position_embeddings'"),
        ({"model_type": None}, "has no field 'model_type'"),
        ({"vocab_size": "many"}, "field 'vocab_size' is 'many', expected int"),
        ({"num_hidden_layers": True}, "field 'num_hidden_layers' is True, expected int"),
        ({"num_hidden_layers": 0}, "field 'num_hidden_layers' is 0, expected a positive number"),
        ({"num_key_value_heads": 3}, r"num_attention_heads \(4\) is not a multiple"),
        ({"head_dim": 15}, "field 'head_dim' is 15, the rotation needs an even number"),
        ({"rope_scaling": "llama3"}, "field 'rope_scaling' is 'llama3', expected an object"),
        ({"rope_scaling": {"type": "llama3"}}, "has no field 'rope_scaling.factor'"),
        ({"eos_token_id": "end"}, "field 'eos_token_id' is 'end', expected an integer or a list"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(read, changes, message):
    with pytest.raises(InvalidInput, match=message) as raised:
        read(**changes)
    assert "config.json" in str(raised.value)
    assert not isinstance(raised.value, UnsupportedModel)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b'{"model_type": ', "cannot be read as JSON"),
        (b"\xff\xfe", "cannot be read as JSON"),
        (b"[1]", "holds a JSON list, not an object"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=message) as raised:
        ModelConfig.from_directory(tmp_path)
    assert "config.json" in str(raised.value)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        (None, 2, (2,)),
        (None, [2, 5], (2, 5)),
        ({"eos_token_id": [7, 8]}, 2, (7, 8)),
        ({"eos_token_id": None}, 2, (2,)),
        ({}, None, ()),
    ],
)
def test_end_tokens_come_from_the_generation_config_first(read, generation, config, expected):
    assert read(generation, eos_token_id=config).eos_token_ids == expected
