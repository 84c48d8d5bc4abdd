import math

import pytest

from warmturn.errors import InvalidInput
from warmturn.session.survival import HorizonBelief, survival


def test_half_of_the_blocks_outlive_the_median():
    assert HorizonBelief(35).survival(35) == pytest.approx(0.5)


def test_survival_falls_from_one_to_nothing():
    curve = [HorizonBelief(35).survival(s) for s in (0, 1, 20, 35, 60, 1000, math.inf)]
    assert curve == sorted(curve, reverse=True)
    assert curve[0] == 1
    assert curve[-1] == 0


def test_the_spread_is_in_log_seconds():
    """One spread above the median: 16 percent are left."""
    assert HorizonBelief(35, 0.3).survival(35 * math.exp(0.3)) == pytest.approx(0.1587, abs=1e-4)


def test_a_pool_that_evicts_nothing_keeps_everything_and_one_without_room_nothing():
    assert HorizonBelief(math.inf).survival(1e9) == 1
    assert HorizonBelief(0).survival(1) == 0


@pytest.mark.parametrize(("belief", "idle_s"), [(None, 10.0), (HorizonBelief(1), None)])
def test_what_is_not_known_counts_as_surviving(belief, idle_s):
    assert survival(belief, idle_s) == 1


@pytest.mark.parametrize("given", [(-1, 0.1), (1, 0), (math.nan, 0.1), (1, math.inf)])
def test_a_belief_that_cannot_be_is_refused(given):
    with pytest.raises(InvalidInput):
        HorizonBelief(*given)
