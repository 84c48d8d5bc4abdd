"""Every figure of the founding text, from the code that `warmturn plan` runs."""

import itertools

import pytest

from warmturn.cost import (
    ConversationShape,
    KvCost,
    horizon_s,
    miss_share_without_affinity,
    num_sequences,
    pool_tokens,
    prefill_work,
    read_model,
    reload_estimate,
)

MIB, GIB = 2**20, 2**30


@pytest.fixture(scope="module")
def llama():
    return read_model("llama-3.1-8b")


@pytest.fixture(scope="module")
def cost(llama):
    return KvCost(llama.geometry)


def test_turn_1_prefills_1650_tokens_and_turn_10_6150():
    shape = ConversationShape()
    assert [shape.prompt_tokens(turn) for turn in (1, 2, 10)] == [1650, 2150, 6150]


def test_ten_turns_prefill_39000_tokens_without_reuse_and_3000_with():
    shape = ConversationShape()
    assert shape.cold_tokens == 39_000
    assert shape.warm_tokens == 3_000
    assert shape.cold_tokens / shape.warm_tokens == 13


def test_without_reuse_the_total_grows_with_the_square_and_with_reuse_linearly():
    totals = [ConversationShape(num_turns=n) for n in range(1, 60)]
    cold = [shape.cold_tokens for shape in totals]
    warm = [shape.warm_tokens for shape in totals]
    assert set(differences(differences(cold))) == {500}, "constant second difference: a square"
    assert set(differences(warm)) == {150}, "constant first difference: a line"
    ratios = [a / b for a, b in zip(cold, warm, strict=True)]
    assert ratios == sorted(ratios), "the gap widens with the length"


def differences(values):
    return [b - a for a, b in itertools.pairwise(values)]


def test_a_turn_that_hits_waits_for_150_tokens_and_one_that_misses_for_all():
    shape = ConversationShape()
    assert shape.new_tokens(10) == 150
    assert shape.prompt_tokens(10) == 6150


def test_a_token_of_llama_3_1_8b_takes_128_kib(cost):
    assert cost.bytes_per_token == 2 * 32 * 8 * 128 * 2 == 131_072 == 128 * 1024


def test_the_conversation_at_turn_10_takes_about_770_mib(cost):
    assert cost.bytes_at(6150) / MIB == pytest.approx(770, rel=0.005)


def test_a_pool_of_40_gib_holds_327_000_tokens_and_53_conversations(cost):
    assert pool_tokens(40 * GIB, cost, sequence_tokens=6150) == 327_680
    assert num_sequences(40 * GIB, cost, sequence_tokens=6150) == 53


def test_idle_blocks_survive_35_seconds():
    horizon = horizon_s(pool_tokens=327_000, pinned_tokens=120_000, new_tokens_per_s=6_000)
    assert horizon == pytest.approx(34.5)
    assert round(horizon + 0.01) == 35


def test_seven_of_eight_later_turns_miss_without_affinity():
    assert miss_share_without_affinity(8) == 7 / 8


def test_reloading_6000_tokens_takes_30_ms_and_computing_them_250(llama, cost):
    work = prefill_work(llama.geometry, num_tokens=6000, active_parameters=8e9)
    estimate = reload_estimate(
        num_bytes=cost.bytes_at(6000), work=work, bytes_per_s=25e9, operations_per_s=400e12
    )
    assert estimate.num_bytes == 750 * MIB
    assert estimate.reload_s == pytest.approx(0.030, rel=0.05)
    assert work.weights == 2 * 8e9 * 6000 == pytest.approx(1e14, rel=0.05)
    assert estimate.recompute_s == pytest.approx(0.250, rel=0.05)


def test_attention_comes_on_top_of_the_250_ms(llama, cost):
    """Half of 6000 x 6000 pairs, 32 layers, 32 query heads of 128, four operations each."""
    work = prefill_work(llama.geometry, num_tokens=6000, active_parameters=8e9)
    assert work.attention == 4 * 32 * 32 * 128 * 6000**2 / 2
    assert work.total / work.weights == pytest.approx(1.098, abs=0.001)
