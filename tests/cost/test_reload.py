import pytest

from warmturn.cost import geometry_of, prefill_work, reload_estimate
from warmturn.errors import InvalidInput

PLAIN = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}
"""Per pair and layer: 4 operations x 2 heads x 4 = 32."""


def pairs(num_tokens, num_cached=0, **fields):
    work = prefill_work(
        geometry_of(PLAIN | fields),
        num_tokens=num_tokens,
        num_cached=num_cached,
        active_parameters=100,
    )
    return work.attention / 32


def counted(num_tokens, num_cached, window):
    """Each new token attends to the tokens before it, and half of itself, inside the window."""
    return 2 * sum(min(token + 0.5, window) for token in range(num_cached, num_tokens))


@pytest.mark.parametrize("num_cached", [0, 3, 8])
def test_attention_counts_half_of_all_pairs(num_cached):
    assert pairs(10, num_cached) == counted(10, num_cached, 10**9)


@pytest.mark.parametrize("num_cached", [0, 3, 8])
def test_window_layers_count_pairs_inside_the_window_only(num_cached):
    assert pairs(10, num_cached, sliding_window=4) == pytest.approx(
        counted(10, num_cached, 4), abs=1.0
    )


def test_layers_that_read_earlier_keys_attend_all_the_same():
    assert pairs(10, num_kv_shared_layers=1) == pairs(10)


def test_cached_tokens_are_not_computed_again():
    work = prefill_work(geometry_of(PLAIN), num_tokens=10, num_cached=8, active_parameters=100)
    assert work.weights == 2 * 100 * 2


def test_at_the_break_even_both_take_the_same_time():
    work = prefill_work(geometry_of(PLAIN), num_tokens=10, active_parameters=100)
    first = reload_estimate(num_bytes=640, work=work, bytes_per_s=1, operations_per_s=50)
    even = reload_estimate(
        num_bytes=640, work=work, bytes_per_s=first.break_even_bytes_per_s, operations_per_s=50
    )
    assert even.reload_s == pytest.approx(even.recompute_with_attention_s)
    assert even.recompute_s < even.recompute_with_attention_s


def test_a_fixed_cost_is_added_to_the_load():
    work = prefill_work(geometry_of(PLAIN), num_tokens=10, active_parameters=100)
    found = reload_estimate(
        num_bytes=100, work=work, bytes_per_s=10, operations_per_s=1, fixed_s=0.5
    )
    assert found.reload_s == 10.5


@pytest.mark.parametrize("rates", [{"bytes_per_s": 0}, {"operations_per_s": -1}])
def test_rates_of_nothing_are_refused(rates):
    work = prefill_work(geometry_of(PLAIN), num_tokens=10, active_parameters=100)
    with pytest.raises(InvalidInput, match="above 0"):
        reload_estimate(
            num_bytes=1, work=work, **{"bytes_per_s": 1.0, "operations_per_s": 1.0} | rates
        )
