import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.errors import BrokenInvariant
from warmturn.fleet.expected import LINGER_S, ExpectedBlocks

A, B = np.array([1, 2, 3], np.uint64), np.array([2, 3, 4], np.uint64)


def test_a_burst_finds_what_the_first_of_it_brings():
    expected = ExpectedBlocks()
    expected.expect(A)
    assert [expected.run(c) for c in ([1, 2, 3, 4], [1, 9], [9], [2, 3])] == [3, 1, 0, 2]


def test_it_lingers_until_the_events_must_have_come():
    expected = ExpectedBlocks()
    first = expected.expect(A)
    expected.expire(1000.0)
    assert len(expected) == 3
    expected.arrived(first, now=1000.0)
    expected.arrived(first, now=1000.5)
    expected.expire(1000.0 + LINGER_S / 2)
    assert len(expected) == 3
    expected.expire(1000.0 + LINGER_S)
    assert len(expected) == 0


def test_a_block_that_two_expect_stays_for_the_second():
    expected = ExpectedBlocks()
    first, _ = expected.expect(A), expected.expect(B)
    expected.arrived(first, now=0.0)
    expected.expire(10.0)
    assert [expected.run([block]) for block in (1, 2, 3, 4)] == [0, 1, 1, 1]


@given(st.lists(st.tuples(st.sampled_from(["expect", "arrive", "clear"]), st.integers(0, 5))))
def test_counts_hold_and_nothing_is_left_behind(steps):
    expected, open_ = ExpectedBlocks(), []
    for now, (what, number) in enumerate(steps):
        if what == "expect":
            open_.append(expected.expect(np.arange(number, number + 3, dtype=np.uint64)))
        elif what == "clear":
            expected.clear()
        elif open_:
            expected.arrived(open_.pop(number % len(open_)), now=float(now))
        expected.expire(float(now))
        expected.check()
    for each in open_:
        expected.arrived(each, now=1000.0)
    expected.expire(2000.0)
    assert len(expected) == 0


def test_a_wrong_count_is_found():
    expected = ExpectedBlocks()
    expected.expect(A)
    expected._counts[9] = 1
    with pytest.raises(BrokenInvariant, match="invariant 1"):
        expected.check()
