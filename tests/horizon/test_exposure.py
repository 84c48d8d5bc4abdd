import math

import pytest

from warmturn.errors import InvalidInput
from warmturn.horizon import exposure, tier_need
from warmturn.session.think_time import LogNormalThinkTime, return_curve

USERS = LogNormalThinkTime(20, 120)


def test_turns_after_the_horizon_lose_their_conversation():
    found = exposure(USERS, horizon_s=20, tokens_per_miss=6000, prefill_tokens_per_s=3000)
    assert found.hit_share == pytest.approx(0.5)
    assert found.miss_share == pytest.approx(0.5)
    assert found.lost_tokens_per_turn == pytest.approx(3000)
    assert found.lost_s_per_turn == pytest.approx(1)


def test_without_a_rate_the_loss_has_no_seconds():
    assert exposure(USERS, horizon_s=20, tokens_per_miss=1).lost_s_per_turn is None


def test_the_mission_s_users_mostly_hit_and_its_long_tail_mostly_misses():
    assert exposure(USERS, horizon_s=35, tokens_per_miss=1).hit_share > 0.6
    late = return_curve([120, 130, 150])
    assert exposure(late, horizon_s=35, tokens_per_miss=1).hit_share == 0


def need(target, **fields):
    given = {"pool_tokens": 1000, "pinned_tokens": 100, "new_tokens_per_s": 10}
    return tier_need(USERS, target_share=target, **given | fields)


def test_a_target_needs_the_pool_in_which_that_share_survives():
    found = need(0.9)
    assert found.horizon_s == pytest.approx(120)
    assert found.total_tokens == pytest.approx(100 + 1200)
    assert found.tier_tokens == pytest.approx(300)


def test_a_pool_that_is_large_enough_needs_no_tier():
    assert need(0.5).tier_tokens == 0


def test_a_log_whose_users_never_come_back_needs_no_finite_tier():
    found = tier_need(
        return_curve([]), target_share=0.9, pool_tokens=1, pinned_tokens=0, new_tokens_per_s=1
    )
    assert found.tier_tokens == math.inf


@pytest.mark.parametrize("target", [0, 1, -0.1, 2])
def test_a_target_that_is_no_share_is_refused(target):
    with pytest.raises(InvalidInput, match="give a share between 0 and 1"):
        need(target)
