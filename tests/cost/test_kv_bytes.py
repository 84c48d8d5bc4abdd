import pytest

from warmturn.cost import KV_DTYPES, KvCost, Parallelism, float_bytes, geometry_of, kv_dtype_named
from warmturn.errors import InvalidInput

TWO_HEADS = {
    "num_hidden_layers": 6,
    "hidden_size": 256,
    "num_attention_heads": 2,
    "head_dim": 128,
}
"""512 elements a layer, 3,072 in all."""
LATENT = TWO_HEADS | {"kv_lora_rank": 512, "qk_rope_head_dim": 64}


def cost(config=None, **options):
    return KvCost(geometry_of(config or TWO_HEADS), **options)


@pytest.mark.parametrize(
    ("name", "num_bytes"),
    [
        ("bfloat16", 2),
        ("float32", 4),
        ("fp8", 1),
        ("int8", 1),
        ("q8_0", 34 / 32),
        ("q4_0", 18 / 32),
        ("nvfp4", 9 / 16),
        ("mxfp4", 17 / 32),
        ("fp8_per_token_head", 1 + 4 / 128),
    ],
)
def test_a_dtype_counts_its_scales(name, num_bytes):
    assert cost(kv_dtype=name).bytes_per_token == 3072 * num_bytes


def test_other_spellings_are_the_same_dtype():
    assert kv_dtype_named("BF16") is KV_DTYPES["bfloat16"]
    assert kv_dtype_named("fp8_e4m3") is KV_DTYPES["fp8"]
    assert float_bytes("fp32") == 4


@pytest.mark.parametrize("read", [kv_dtype_named, float_bytes])
def test_an_unknown_dtype_is_refused_and_the_known_ones_named(read):
    with pytest.raises(InvalidInput, match=r"'q3_made_up' is not known.*bfloat16"):
        read("q3_made_up")


def test_a_vector_that_is_no_multiple_of_the_block_takes_a_whole_one_more():
    assert kv_dtype_named("q8_0").vector_bytes(33) == 2 * 34


def test_packed_latents_are_refused_for_keys_and_values_per_head():
    with pytest.raises(InvalidInput, match="fp8_ds_mla packs the latent of MLA"):
        cost(kv_dtype="fp8_ds_mla")


# --- parallelism ------------------------------------------------------------------------------


@pytest.mark.parametrize(("tp", "share", "copies"), [(1, 1, 1), (2, 1 / 2, 1), (4, 1 / 2, 2)])
def test_heads_divide_over_ranks_until_one_is_left(tp, share, copies):
    found = cost(parallelism=Parallelism(tp))
    assert found.bytes_per_token_per_gpu == found.bytes_per_token * share
    assert found.num_token_copies == copies


def test_heads_that_do_not_divide_leave_one_rank_with_more():
    three = TWO_HEADS | {"num_attention_heads": 3}
    found = cost(three, parallelism=Parallelism(2))
    assert found.bytes_per_token_per_gpu == found.bytes_per_token * 2 / 3


def test_a_latent_lies_on_every_rank():
    found = cost(LATENT, parallelism=Parallelism(8))
    assert found.bytes_per_token_per_gpu == found.bytes_per_token == 6 * 576 * 2
    assert found.num_token_copies == 8


def test_groups_of_data_parallel_attention_do_not_divide_the_heads_further():
    found = cost(parallelism=Parallelism(4, data_attention=2))
    assert found.bytes_per_token_per_gpu == found.bytes_per_token / 2
    assert found.num_token_copies == 1


def test_pipeline_stages_hold_their_own_layers():
    found = cost(parallelism=Parallelism(pipeline=4))
    assert found.bytes_per_token_per_gpu == found.bytes_per_token * 2 / 6, "2 + 2 + 1 + 1 layers"
    assert found.num_token_copies == 1


def test_states_divide_over_ranks():
    hybrid = TWO_HEADS | {
        "layer_types": ["conv", "full_attention"] * 3,
        "conv_L_cache": 3,
    }
    whole, half = cost(hybrid), cost(hybrid, parallelism=Parallelism(2))
    assert whole.state.total == 3 * 256 * 2 * 2
    assert half.bytes_at_per_gpu(10) * 2 == whole.bytes_at(10)


@pytest.mark.parametrize(
    "given", [{"tensor": 0}, {"tensor": 4, "data_attention": 3}, {"pipeline": 0}]
)
def test_what_does_not_divide_is_refused(given):
    with pytest.raises(InvalidInput):
        Parallelism(**given)


def test_more_stages_than_layers_are_refused():
    with pytest.raises(InvalidInput, match="7 pipeline stages for 6 layers"):
        cost(parallelism=Parallelism(pipeline=7))
