"""One test per family of caches, on configs as their makers publish them."""

import pytest

from warmturn.cost import KvCost, geometry_of
from warmturn.errors import InvalidInput

PLAIN = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
"""A row is 2 x 2 heads x 8 x 2 bytes = 64 bytes per layer."""


def cost(config=None, **fields):
    return KvCost(geometry_of((config or PLAIN) | fields))


def per_token(**fields):
    return cost(**fields).bytes_per_token


def test_grouped_query_attention_counts_kv_heads():
    assert per_token() == 4 * 64


def test_multi_head_attention_has_as_many_kv_heads_as_heads():
    assert per_token(num_key_value_heads=None) == 4 * 64 * 4


@pytest.mark.parametrize(
    ("fields", "heads"),
    [
        ({"multi_query": True}, 1),
        ({"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 4}, 4),
        ({"multi_query_attention": True, "multi_query_group_num": 2}, 2),
        ({"n_head_kv": 4}, 4),
        ({"num_query_groups": 4}, 4),
        ({"attn_config": {"kv_n_heads": 2}}, 2),
    ],
)
def test_families_spell_kv_heads_their_own_way(fields, heads):
    assert per_token(num_key_value_heads=None, **fields) == 4 * 32 * heads


def test_head_dim_is_taken_where_it_is_given_and_derived_where_it_is_null():
    assert per_token(head_dim=16) == 4 * 128
    assert per_token(head_dim=None) == 4 * 64


def test_fields_may_stand_under_text_config():
    nested = {"model_type": "x", "hidden_size": 1, "text_config": PLAIN}
    assert cost(nested).bytes_per_token == 4 * 64
    deeper = {"thinker_config": {"text_config": PLAIN}}
    assert cost(deeper).bytes_per_token == 4 * 64


def test_keys_and_values_may_have_different_lengths():
    assert per_token(head_dim=24, v_head_dim=16) == 4 * 2 * (24 + 16) * 2


def test_heads_may_differ_by_layer():
    assert per_token(num_key_value_heads=[1, 2, 2, 4]) == 9 * 32
    assert per_token(num_key_value_heads_per_layer=[4, 4, 2, 1]) == 11 * 32


def test_a_searched_model_drops_attention_from_layers():
    blocks = [
        {"attention": {"n_heads_in_group": 4}},
        {"attention": {"no_op": True}},
        {"attention": {"replace_with_linear": True}},
        {"attention": {"n_heads_in_group": 8}},
    ]
    searched = cost(block_configs=blocks)
    assert searched.bytes_per_token == (2 + 1) * 32
    assert searched.geometry.num_owning_layers == 2


def test_a_latent_is_kept_once_and_not_twice():
    latent = PLAIN | {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    assert cost(latent).bytes_per_token == 4 * (512 + 64) * 2
    assert geometry_of(latent).head_dim == 192


def test_an_indexer_adds_a_key_of_fp8_with_its_scale_under_any_dtype():
    sparse = PLAIN | {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128}
    assert cost(sparse).bytes_per_token == 4 * (1152 + 132)
    packed = KvCost(geometry_of(sparse), kv_dtype="fp8_ds_mla")
    assert packed.bytes_per_token == 4 * (656 + 132)


def test_a_layer_that_takes_another_ones_choice_has_no_index_key():
    sparse = PLAIN | {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128}
    shared = cost(sparse, indexer_types=["full", "shared", "full", "shared"])
    assert shared.bytes_per_token == 4 * 1152 + 2 * 132


def test_the_longcat_family_attends_twice_per_layer():
    assert per_token(model_type="longcat_flash") == 8 * 64


# --- windows ----------------------------------------------------------------------------------


def test_a_model_of_windows_grows_until_they_are_full():
    mistral = cost(sliding_window=10)
    assert [mistral.bytes_at(n) for n in (0, 1, 10, 11, 1000)] == [0, 256, 2560, 2560, 2560]
    assert mistral.bytes_per_token == 0
    assert mistral.short_bytes_per_token == 256


@pytest.mark.parametrize(
    ("fields", "num_window_layers"),
    [
        ({"model_type": "gemma2"}, 2),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 4}, 3),
        ({"model_type": "cohere2"}, 3),
        ({"layer_types": ["sliding_attention"] * 3 + ["full_attention"]}, 3),
        ({"use_sliding_window": False, "max_window_layers": 2}, 0),
        ({"use_sliding_window": True, "max_window_layers": 3}, 1),
        ({"hybrid_layer_pattern": [0, 1, 1, 0]}, 2),
        ({"model_type": "recurrent", "sliding_window": None}, 0),
    ],
)
def test_families_say_which_layers_are_windows_their_own_way(fields, num_window_layers):
    shape = geometry_of(PLAIN | {"sliding_window": 10} | fields)
    assert shape.num_owning_window_layers == num_window_layers
    assert shape.num_owning_layers == 4


def test_chunked_layers_keep_at_most_a_chunk():
    chunked = cost(model_type="llama4", attention_chunk_size=10, no_rope_layer_interval=4)
    assert chunked.bytes_per_token == 64
    assert chunked.window_bytes == 3 * 64 * 10
    assert cost(no_rope_layers=[1, 1, 0, 0], attention_chunk_size=10).bytes_per_token == 128


def test_two_geometries_in_one_model():
    """Gemma 4: global layers with one head of 32; MiMo-V2: windows with heads of their own."""
    words = ["sliding_attention", "full_attention"] * 2
    gemma = cost(
        layer_types=words, sliding_window=10, global_head_dim=32, num_global_key_value_heads=1
    )
    assert gemma.bytes_per_token == 2 * 1 * 64 * 2
    assert gemma.window_bytes == 2 * 64 * 10
    mimo = cost(
        hybrid_layer_pattern=[1, 0, 1, 0],
        sliding_window=10,
        head_dim=12,
        v_head_dim=8,
        swa_num_key_value_heads=4,
        swa_head_dim=12,
        swa_v_head_dim=8,
    )
    assert mimo.bytes_per_token == 2 * 2 * 20 * 2
    assert mimo.window_bytes == 2 * 4 * 20 * 2 * 10


# --- sharing ----------------------------------------------------------------------------------


def test_the_last_layers_may_read_what_earlier_ones_keep():
    shape = geometry_of(PLAIN | {"num_kv_shared_layers": 3})
    assert shape.num_owning_layers == 1
    assert shape.num_attention_layers == 4


def test_every_second_layer_may_read_what_the_one_before_keeps():
    assert per_token(use_cla=True, cla_share_factor=2) == 2 * 64
    assert per_token(use_cla=False, cla_share_factor=2) == 4 * 64


def test_layers_that_attend_to_an_image_keep_nothing_per_token_of_text():
    assert per_token(cross_attention_layers=[1, 3]) == 2 * 64


def test_layers_of_multi_token_prediction_count_only_with_speculation():
    shape = geometry_of(PLAIN | {"num_nextn_predict_layers": 1})
    assert KvCost(shape).bytes_per_token == 4 * 64
    assert KvCost(shape, has_speculation=True).bytes_per_token == 5 * 64


# --- recurrent layers -------------------------------------------------------------------------

MAMBA_1 = {"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2}
MAMBA_2 = {"mamba_num_heads": 8, "mamba_head_dim": 4, "ssm_state_size": 16, "conv_kernel": 4}
DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}


@pytest.mark.parametrize(
    ("fields", "num_attention", "conv", "recurrent"),
    [
        # Jamba: one layer in four; 128 channels x 3 inputs, 128 x 16 of state
        (MAMBA_1 | {"attn_layer_period": 4, "attn_layer_offset": 2}, 1, 384, 2048),
        # Qwen3-Next: 2 x 2 x 8 + 4 x 16 channels; 4 heads of 8 x 16
        (DELTA | {"full_attention_interval": 2}, 2, 96 * 3, 512),
        # Nemotron-H: 8 x 4 channels and 2 x 16 of the one group; 8 x 4 x 16
        (MAMBA_2 | {"hybrid_override_pattern": "M*-M"}, 1, 64 * 3, 512),
        # Falcon-H1: both in every layer
        (MAMBA_2 | {"model_type": "falcon_h1"}, 4, 64 * 3, 512),
        # Bamba: attention by index
        (MAMBA_2 | {"attn_layer_indices": [3]}, 1, 64 * 3, 512),
        # MiniMax-Text-01: 8 heads of 8 x 8
        ({"attn_type_list": [0, 0, 0, 1]}, 1, 0, 512),
        # LFM2: a short convolution
        ({"layer_types": ["conv"] * 3 + ["full_attention"], "conv_L_cache": 3}, 1, 128, 0),
        # Kimi Linear: 3 x 2 x 8 channels; 2 heads of 8 x 8; layers count from 1
        (
            {
                "linear_attn_config": {
                    "full_attn_layers": [4],
                    "kda_layers": [1, 2, 3],
                    "num_heads": 2,
                    "head_dim": 8,
                    "short_conv_kernel_size": 4,
                }
            },
            1,
            48 * 3,
            128,
        ),
    ],
)
def test_recurrent_layers_keep_a_constant_state(fields, num_attention, conv, recurrent):
    shape = geometry_of(PLAIN | fields)
    states = [layer.state for layer in shape.layers if layer.state]
    assert shape.num_attention_layers == num_attention
    assert {(s.conv_elements, s.recurrent_elements) for s in states} == {(conv, recurrent)}
    assert KvCost(shape).state.conv == len(states) * conv * 2
    assert KvCost(shape).state.recurrent == len(states) * recurrent * 4


def test_of_each_interval_the_last_layer_attends():
    shape = geometry_of(PLAIN | DELTA | {"full_attention_interval": 2})
    assert [layer.cache is not None for layer in shape.layers] == [False, True, False, True]


def test_a_cycle_of_block_types_repeats():
    griffin = geometry_of(
        PLAIN
        | {
            "model_type": "recurrent_gemma",
            "block_types": ["recurrent", "recurrent", "attention"],
            "attention_window_size": 10,
            "lru_width": 64,
            "conv1d_width": 4,
        }
    )
    assert [layer.cache is not None for layer in griffin.layers] == [False, False, True, False]
    assert griffin.num_owning_window_layers == 1


def test_a_model_without_attention_keeps_no_token():
    mamba = cost(
        {
            "model_type": "mamba",
            "num_hidden_layers": 2,
            "hidden_size": 8,
            "intermediate_size": 16,
            "state_size": 4,
            "conv_kernel": 4,
        }
    )
    assert mamba.bytes_per_token == 0
    assert mamba.bytes_at(10) == mamba.bytes_at(10_000) == 2 * (16 * 3 * 2 + 16 * 4 * 4)


# --- what cannot be known ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field", "why"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers", "every layer keeps"),
        ({"hidden_size": None}, "hidden_size", "length of a key"),
        (
            {"num_attention_heads": None, "num_key_value_heads": None},
            "num_attention_heads",
            "a key and a value",
        ),
        ({"hidden_size": 65}, "hidden_size", "not always"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim", "beside the latent"),
        ({"num_key_value_heads": "8"}, "num_key_value_heads", "size what a token keeps"),
        ({"num_hidden_layers": -1}, "num_hidden_layers", "at least 1"),
        ({"num_hidden_layers": True}, "num_hidden_layers", "at least 1"),
        ({"num_hidden_layers": 10**9}, "1000000000 layers", "believed"),
        ({"num_key_value_heads": [1, 2]}, "num_key_value_heads", "one entry per layer"),
        ({"layer_types": ["full_attention"]}, "layer_types", "one entry per layer"),
        ({"layer_types": ["warp"] * 4}, "warp", "each layer's kind"),
        ({"layer_types": 3}, "layer_types", "what each layer is"),
        ({"hybrid_override_pattern": "M?M*"}, "hybrid_override_pattern", "each layer's kind"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window", "no more"),
        ({"layer_types": ["mamba"] * 4}, "mamba_*", "state is part"),
        ({"mamba_d_state": 16}, "mamba_d_state", "one state"),
        ({"compress_ratios": [4, 128]}, "compress_ratios", "not known here"),
        ({"is_encoder_decoder": True}, "encoder-decoder", "of the encoder"),
        ({"block_configs": [1, 2, 3, 4]}, "block_configs[0]", "a key and a value"),
        ({"block_configs": []}, "0 block_configs", "a key and a value"),
    ],
)
def test_what_is_missing_wrong_or_unknown_is_named_with_why_it_matters(fields, field, why):
    with pytest.raises(InvalidInput) as error:
        geometry_of(PLAIN | fields, name="tiny")
    assert "tiny" in str(error.value)
    assert field in str(error.value)
    assert why in str(error.value)
