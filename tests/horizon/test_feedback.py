import math
from statistics import median

import pytest

from tests.support.lru_replica import LruReplica
from warmturn.errors import InvalidInput
from warmturn.horizon import (
    LoadModel,
    TimedPage,
    estimate_horizon,
    fit_load,
    read_metrics_page,
    steady_state,
)
from warmturn.session.think_time import LogNormalThinkTime, return_curve

USERS = LogNormalThinkTime(20, 120)


def load(**fields):
    given = {
        "generated_tokens_per_s": 10.0,
        "unavoidable_tokens_per_s": 10.0,
        "reuse_tokens_per_s": 100.0,
        "think_times": USERS,
    }
    return LoadModel(**given | fields)


def test_the_pool_holds_what_passes_within_its_horizon():
    state = steady_state(load(), idle_tokens=2000)
    assert load().idle_tokens(state.horizon_s) == pytest.approx(2000)


def test_idle_tokens_by_hand():
    """Of 100 per second half comes back after 10 s, half after 50. With a horizon of 20: 20 new per
    second and 50 missed for 20 s each, and 50 found again after lying for 10."""
    users = return_curve([10, 50])
    assert load(think_times=users).idle_tokens(20) == (20 + 50) * 20 + 50 * 10


def test_without_reuse_it_is_the_plain_quotient():
    assert steady_state(load(reuse_tokens_per_s=0.0), idle_tokens=2000).horizon_s == pytest.approx(
        2000 / 20
    )


def test_a_larger_pool_gains_more_than_in_proportion():
    """Each hit more is a miss less, which leaves more room still."""
    small, large = (steady_state(load(), idle_tokens=v).horizon_s for v in (1000, 2000))
    assert large > 2 * small


def test_a_pool_that_nothing_fills_keeps_everything():
    state = steady_state(
        load(
            generated_tokens_per_s=0.0,
            unavoidable_tokens_per_s=0.0,
            reuse_tokens_per_s=1.0,
            think_times=return_curve([1.0]),
        ),
        idle_tokens=100,
    )
    assert state.horizon_s == math.inf
    assert state.hit_share == 1


def test_a_load_fitted_at_one_pool_predicts_the_present_and_another():
    truth = load()
    now = steady_state(truth, idle_tokens=3000)
    fitted = fit_load(
        horizon_s=now.horizon_s,
        miss_tokens_per_s=now.new_tokens_per_s - 10,
        generated_tokens_per_s=10,
        hit_tokens_per_s=100 * now.hit_share,
        think_times=USERS,
    )
    assert fitted.reuse_tokens_per_s == pytest.approx(100)
    assert fitted.unavoidable_tokens_per_s == pytest.approx(10)
    for pool in (3000, 9000):
        found, real = (steady_state(x, idle_tokens=pool) for x in (fitted, truth))
        assert found.horizon_s == pytest.approx(real.horizon_s)


@pytest.mark.parametrize("factor", [0.7, 1.5])
def test_what_if_predicts_a_simulated_pool_of_another_size(factor):
    """Measured at one size, asked for another, which is then simulated."""
    users = return_curve([5 + 55 * k / 100 for k in range(101)])
    now, truth_now = measured(4000, users)
    assert now.horizon_s == pytest.approx(truth_now, rel=0.2)
    fitted = fit_load(
        horizon_s=now.horizon_s,
        miss_tokens_per_s=now.miss_tokens_per_s,
        generated_tokens_per_s=now.generated_tokens_per_s,
        hit_tokens_per_s=now.hit_tokens_per_s,
        think_times=users,
    )
    pool = int(4000 * factor)
    predicted = steady_state(fitted, idle_tokens=pool * 16 - now.pinned_tokens)
    _, truth = measured(pool, users)
    assert predicted.horizon_s == pytest.approx(truth, rel=0.25)


def measured(num_blocks, users):
    replica = LruReplica(num_blocks=num_blocks, new_per_s=0.8, seed=5)
    texts = list(replica.pages(until_s=600, every_s=5))
    pages = [TimedPage(s, read_metrics_page(text)) for s, text in texts if s >= 200]
    truth = median(age for at, age in replica.idle_ages if at >= 200)
    return estimate_horizon(pages, think_times=users), truth


def test_where_nobody_comes_back_in_time_hits_tell_nothing():
    with pytest.raises(InvalidInput, match="larger pool"):
        fit_load(
            horizon_s=1,
            miss_tokens_per_s=1,
            generated_tokens_per_s=1,
            hit_tokens_per_s=0,
            think_times=return_curve([30]),
        )
