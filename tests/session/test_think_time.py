import math

import pytest

from warmturn.errors import InvalidInput
from warmturn.session.think_time import LogNormalThinkTime, return_curve


def test_two_figures_are_the_quantiles_they_were_given_as():
    users = LogNormalThinkTime(20, 120)
    assert users.share_within(20) == pytest.approx(0.5)
    assert users.share_within(120) == pytest.approx(0.9)
    assert users.seconds_for(0.9) == pytest.approx(120)


def test_the_ends_of_the_distribution():
    users = LogNormalThinkTime(20, 120)
    assert (users.share_within(0), users.share_within(math.inf)) == (0, 1)
    assert (users.seconds_for(0), users.seconds_for(1)) == (0, math.inf)


@pytest.mark.parametrize("given", [(0, 1), (20, 20), (20, math.inf), (math.nan, 2)])
def test_figures_that_make_no_distribution_are_refused(given):
    with pytest.raises(InvalidInput):
        LogNormalThinkTime(*given)


def test_without_censoring_the_curve_is_the_share_that_came():
    curve = return_curve([10, 10, 30, 60])
    assert curve.times_s == (10, 30, 60)
    assert curve.shares == pytest.approx((0.5, 0.75, 1))
    assert curve.return_share == pytest.approx(1)
    assert [curve.share_within(s) for s in (9, 10, 45, 60)] == pytest.approx([0, 0.5, 0.75, 1])


def test_kaplan_meier_by_hand():
    """Of five, one comes at 10, one is cut off at 20, one comes at 30, two are cut off at 40.

    Away after 10: 4/5; of the three still watched at 30 one comes: 4/5 x 2/3.
    """
    curve = return_curve([10, 30], [20, 40, 40])
    assert curve.shares == pytest.approx((1 / 5, 1 - 4 / 5 * 2 / 3))


def test_cut_off_at_the_moment_of_a_return_was_still_away():
    assert return_curve([10], [10]).shares == pytest.approx((0.5,))


def test_think_time_is_of_those_who_come_back():
    curve = return_curve([10, 30], [100, 100])
    assert curve.return_share == pytest.approx(0.5)
    assert curve.share_within(10) == pytest.approx(0.5)
    assert curve.seconds_for(0.5) == 10
    assert curve.seconds_for(0.51) == 30


def test_cutting_conversations_off_does_not_make_users_look_faster():
    """Half of the true times are cut at 50 s; dropping those would say that all came by 50 s."""
    cut = return_curve([10, 20, 30, 40], [50, 50, 50, 50])
    assert cut.shares[-1] == pytest.approx(0.5)


def test_an_empty_log_says_nothing():
    curve = return_curve([])
    assert (curve.return_share, curve.share_within(10)) == (0, 0)
    assert curve.seconds_for(0.5) == math.inf


def test_a_negative_think_time_is_refused():
    with pytest.raises(InvalidInput, match="negative"):
        return_curve([5, -1])


def test_the_mean_of_those_who_came_in_time():
    assert return_curve([10, 20, 90]).mean_within_s(50) == pytest.approx(15)
    assert return_curve([10]).mean_within_s(5) == 0
    users = LogNormalThinkTime(20, 120)
    steps = [k * 0.02 for k in range(1, 5001)]  # up to 100 s
    shares = [users.share_within(s) for s in steps]
    weighted = sum(s * (b - a) for s, a, b in zip(steps, [0.0, *shares], shares, strict=False))
    assert users.mean_within_s(100) == pytest.approx(weighted / shares[-1], rel=1e-3)
    assert users.mean_within_s(math.inf) > users.mean_within_s(1e6) > users.mean_within_s(100)
