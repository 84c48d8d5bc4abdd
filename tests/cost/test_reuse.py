import pytest

from warmturn.cost.reuse import cost_of, reuse_of


def cost(**fields):
    given = {
        "prompt_tokens": 100,
        "earlier_prompt_tokens": 60,
        "generated_tokens": 21,
        "shared_tokens": 80,
        "block_size": 16,
    }
    return cost_of(**given | fields)


def test_a_turn_that_shares_all_but_the_last_generated_token_loses_nothing():
    found = cost()
    assert (found.prompt_share, found.cached_share, found.lost_tokens) == (1.0, 1.0, 0)
    assert found.num_full_blocks == 5


def test_a_stripped_reply_is_a_miss_though_all_of_the_prompt_is_shared():
    found = cost(shared_tokens=60)
    assert found.prompt_share == 1.0
    assert found.cached_share == 0.75
    assert (found.lost_tokens, found.lost_blocks) == (20, 2)


def test_shares_are_taken_before_flooring_to_blocks():
    found = cost(shared_tokens=30)
    assert (found.prompt_share, found.num_full_blocks) == (0.5, 1)


def test_the_time_lost_is_that_of_lost_blocks_at_the_given_rate():
    assert cost(shared_tokens=60, prefill_tokens_per_s=64.0).lost_ttft_s == 0.5
    assert cost(shared_tokens=60).lost_ttft_s is None


@pytest.mark.parametrize(
    ("shared", "cached", "num_next", "paged", "hybrid", "exact"),
    [
        (32, 32, 33, 32, 0, 32),
        (32, 32, 32, 16, 0, 31),  # one token is always computed: here it costs a block
        (31, 32, 64, 16, 0, 0),
        (1500, 1500, 1600, 1488, 1024, 1500),
        (0, 10, 20, 0, 0, 0),
    ],
)
def test_each_kind_of_engine_reuses_what_it_can(shared, cached, num_next, paged, hybrid, exact):
    found = reuse_of(shared, cached, num_next=num_next, block_sizes=(16,))
    assert (found.paged[16], found.hybrid, found.exact_end_only) == (paged, hybrid, exact)


def test_the_first_turn_of_an_empty_prompt_shares_all_of_nothing():
    found = cost(earlier_prompt_tokens=0, generated_tokens=0, shared_tokens=0)
    assert (found.prompt_share, found.cached_share) == (1.0, 1.0)
