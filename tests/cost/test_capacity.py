import math

import pytest

from warmturn.cost import (
    KvCost,
    Parallelism,
    geometry_of,
    horizon_s,
    miss_share_without_affinity,
    num_sequences,
    pool_tokens,
    tier_horizons,
    tokens_to_survive,
)
from warmturn.errors import InvalidInput

PLAIN = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
"""64 bytes per token."""


def test_a_pool_of_whole_tokens_and_whole_sequences():
    cost = KvCost(geometry_of(PLAIN))
    assert pool_tokens(6500, cost, sequence_tokens=10) == 101
    assert num_sequences(6500, cost, sequence_tokens=10) == 10


def test_window_layers_make_a_pool_of_long_sequences_larger():
    cost = KvCost(geometry_of(PLAIN | {"sliding_window": 10}))
    assert pool_tokens(6400, cost, sequence_tokens=10) == 100
    assert pool_tokens(6400, cost, sequence_tokens=1000) == 10_000


def test_groups_of_data_parallel_attention_hold_different_sequences():
    latent = PLAIN | {"kv_lora_rank": 28, "qk_rope_head_dim": 4}
    one, four = (
        KvCost(geometry_of(latent), parallelism=Parallelism(4, data_attention=groups))
        for groups in (1, 4)
    )
    assert pool_tokens(6400, one, sequence_tokens=10) == 100
    assert pool_tokens(6400, four, sequence_tokens=10) == 400
    assert num_sequences(6400, four, sequence_tokens=10) == 40


def test_the_horizon_is_what_lies_idle_over_what_enters():
    assert horizon_s(pool_tokens=100, pinned_tokens=40, new_tokens_per_s=6) == 10


def test_a_pool_that_is_pinned_whole_keeps_nothing_and_an_idle_server_everything():
    assert horizon_s(pool_tokens=100, pinned_tokens=140, new_tokens_per_s=6) == 0
    assert horizon_s(pool_tokens=100, pinned_tokens=0, new_tokens_per_s=0) == math.inf


@pytest.mark.parametrize("name", ["pool_tokens", "pinned_tokens", "new_tokens_per_s"])
def test_negative_figures_are_refused(name):
    given = dict.fromkeys(("pool_tokens", "pinned_tokens", "new_tokens_per_s"), 1.0)
    with pytest.raises(InvalidInput, match="none can be negative"):
        horizon_s(**given | {name: -1.0})


def test_outputs_shorten_the_horizon_and_the_host_lengthens_it():
    found = tier_horizons(
        device_tokens=900,
        host_tokens=7200,
        new_prompt_tokens_per_s=0.6,
        generated_tokens_per_s=0.4,
    )
    assert (found.device_s, found.host_extra_s, found.total_s) == (900, 7200, 8100)


def test_what_is_needed_to_survive_is_the_horizon_backwards():
    tokens = tokens_to_survive(idle_s=10, pinned_tokens=40, new_tokens_per_s=6)
    assert horizon_s(pool_tokens=tokens, pinned_tokens=40, new_tokens_per_s=6) == 10


def test_one_replica_loses_nothing_to_routing():
    assert miss_share_without_affinity(1) == 0
    with pytest.raises(InvalidInput, match="0 replicas"):
        miss_share_without_affinity(0)
