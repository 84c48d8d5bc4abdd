import pytest

from warmturn.cost import KvCost, device_budget, geometry_of, splits, tenant_cost
from warmturn.errors import InvalidInput

COST = KvCost(geometry_of({"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}))
"""64 bytes per token."""


def test_what_weights_and_activations_leave_is_the_pool():
    budget = device_budget(
        total_bytes=1000, weight_bytes=600, num_gpus=2, activation_bytes=100, utilisation=0.9
    )
    assert (budget.usable, budget.weights, budget.pool) == (900, 300, 500)


def test_weights_that_leave_no_pool_are_refused_with_a_way_out():
    with pytest.raises(InvalidInput, match=r"leave nothing of 900 .* on each of 1 GPUs.*--tp"):
        device_budget(total_bytes=1000, weight_bytes=900, activation_bytes=0)


@pytest.mark.parametrize("share", [0, 1.1])
def test_a_utilisation_that_is_no_share_is_refused(share):
    with pytest.raises(InvalidInput, match="give 0 to 1"):
        device_budget(total_bytes=1000, weight_bytes=1, activation_bytes=0, utilisation=share)


def test_each_split_trades_the_decode_batch_for_the_horizon():
    """By hand: ten requests of 640 bytes fit; 35 percent are three whole ones."""
    rows = splits(
        COST, pool_bytes=6400, sequence_tokens=10, new_tokens_per_s=2, shares=(0.1, 0.35, 0.9)
    )
    assert [row.decode_batch for row in rows] == [1, 3, 9]
    assert [row.idle_conversations for row in rows] == [9, 7, 1]
    assert [row.idle_tokens for row in rows] == [90, 70, 10]
    assert [row.horizon_s for row in rows] == [45, 35, 5]


def tenants(num_tenants, **fields):
    given = {
        "num_tenants": num_tenants,
        "system_tokens": 35,
        "block_size": 16,
        "bytes_per_token": 64,
        "pool_tokens": 1000,
        "pinned_tokens": 100,
        "new_tokens_per_s": 4,
    }
    return tenant_cost(**given | fields)


def test_a_salted_system_prompt_is_kept_once_per_tenant():
    """35 tokens are two full blocks; the third is never shared, salted or not."""
    found = tenants(10)
    assert (found.shared_tokens, found.salted_tokens, found.salted_bytes) == (32, 320, 20_480)
    assert found.horizon_before_s == (1000 - 100 - 32) / 4
    assert found.horizon_s == (1000 - 100 - 320) / 4
    assert found.lost_hit_tokens == 9 * 32
    assert found.fits


def test_more_copies_than_fit_leave_no_horizon():
    found = tenants(29)
    assert found.horizon_s == 0
    assert not found.fits


def test_one_tenant_costs_nothing():
    found = tenants(1)
    assert found.horizon_s == found.horizon_before_s
    assert found.lost_hit_tokens == 0


def test_no_tenant_is_refused():
    with pytest.raises(InvalidInput, match="0 tenants"):
        tenants(0)
