import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.errors import InvalidInput
from warmturn.session.returning import ReturnStatistics, return_class, stop_kind
from warmturn.session.think_time import return_curve

USER = return_class("end_turn", 3)


def learned(returned, away=(), of=USER):
    statistics = ReturnStatistics()
    for seconds in returned:
        statistics.observe_return(of, seconds)
    for seconds in away:
        statistics.observe_away(of, seconds)
    statistics.check()
    return statistics


@pytest.mark.parametrize(("turns", "bucket"), [(1, 0), (2, 1), (4, 2), (8, 3), (9, 4), (500, 4)])
def test_turns_are_grouped_as_they_return(turns, bucket):
    assert return_class("other", turns).turn_bucket == bucket


@pytest.mark.parametrize(
    ("reason", "calls", "kind"),
    [
        ("stop", False, "end_turn"),
        ("end_turn", False, "end_turn"),
        ("tool_calls", False, "tool_use"),
        ("stop", True, "tool_use"),
        ("length", False, "other"),
        (None, False, "other"),
    ],
)
def test_finish_reasons_tell_who_is_next(reason, calls, kind):
    assert stop_kind(reason, has_tool_calls=calls) == kind


def test_before_anything_is_seen_nothing_is_known():
    statistics = ReturnStatistics()
    assert statistics.chance(USER) is None
    assert statistics.turns_left(USER) is None


def test_the_chance_to_return_is_the_share_that_did():
    statistics = learned([20.0] * 60, [5000.0] * 40)
    assert statistics.chance(USER) == pytest.approx(0.6, abs=0.01)
    assert statistics.turns_left(USER) == pytest.approx(0.6 / 0.4, rel=0.05)


def test_the_longer_one_is_away_the_less_is_to_be_hoped():
    statistics = learned([20.0] * 60, [5000.0] * 40)
    assert statistics.chance(USER, idle_s=10) == pytest.approx(0.6, abs=0.02)
    assert statistics.chance(USER, idle_s=100) == pytest.approx(0, abs=0.02)


def test_those_cut_off_within_a_bin_were_there_for_half_of_it():
    """25 return of 55, of whom 30 are cut off in the same bin: of 40 on average."""
    statistics = learned([20.0] * 25, [20.0] * 30)
    assert statistics.chance(USER) == pytest.approx(25 / (55 - 15))


def test_a_return_is_expected_where_returns_were_seen():
    statistics = learned([20.0] * 100)
    assert statistics.chance(USER, within_s=10) < 0.05
    assert statistics.chance(USER, within_s=40) > 0.95


def test_a_class_with_few_returns_borrows_from_all():
    statistics = learned([20.0] * 100)
    rare = return_class("tool_use", 1)
    statistics.observe_return(rare, 1.0)
    assert statistics.chance(rare, within_s=5) < 0.1
    for _ in range(50):
        statistics.observe_return(rare, 1.0)
    assert statistics.chance(rare, within_s=5) > 0.9
    assert statistics.num_returns(rare) == 51
    assert statistics.num_returns() == 151


def test_turns_left_have_an_end():
    assert learned([20.0] * 100).turns_left(USER, most=50) == 50


@pytest.mark.parametrize("seconds", [-1.0, math.nan])
def test_time_that_cannot_be_is_refused(seconds):
    with pytest.raises(InvalidInput):
        ReturnStatistics().observe_return(USER, seconds)


def test_bins_agree_with_kaplan_meier_on_a_large_log():
    """The exact curve of the same log, within the width of a bin."""
    rng = random.Random(4)
    returned, away = [], []
    for _ in range(4000):
        gap, watched = rng.lognormvariate(3, 1), rng.uniform(0, 200)
        if rng.random() < 0.7 and gap <= watched:
            returned.append(gap)
        else:
            away.append(watched)
    statistics, curve = learned(returned, away), return_curve(returned, away)
    for seconds in (5, 20, 60, 150):
        exact = curve.share_within(seconds) * curve.return_share
        assert statistics.chance(USER, within_s=seconds) == pytest.approx(exact, abs=0.03)


@given(
    st.lists(st.floats(0, 1e7), max_size=40),
    st.lists(st.floats(0, 1e7), max_size=40),
    st.floats(0, 1e7),
    st.floats(0, 1e7),
)
def test_chances_are_chances_and_grow_with_the_time_allowed(returned, away, idle, within):
    statistics = learned(returned, away)
    chance = statistics.chance(USER, idle_s=idle, within_s=within)
    if not returned and not away:
        assert chance is None
        return
    longer = statistics.chance(USER, idle_s=idle, within_s=2 * within + 1)
    assert -1e-9 <= chance <= longer + 1e-9 <= 1 + 2e-9
