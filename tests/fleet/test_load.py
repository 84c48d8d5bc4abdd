import pytest

from warmturn.errors import InvalidInput
from warmturn.fleet import SmoothedLoad


def test_a_burst_of_a_moment_hardly_moves_the_mean():
    load = SmoothedLoad(now=0.0, memory_s=10.0)
    load.set_level(40, now=100.0)
    load.set_level(0, now=100.1)
    assert load.mean(now=100.1) < 0.5


def test_a_level_that_lasts_becomes_the_mean():
    load = SmoothedLoad(now=0.0, memory_s=10.0)
    load.set_level(8, now=0.0)
    assert load.mean(now=10.0) == pytest.approx(8 * (1 - 2.718281828**-1))
    assert load.mean(now=1000.0) == pytest.approx(8)


def test_the_mean_does_not_depend_on_how_often_it_is_told():
    once, often = (SmoothedLoad(now=0.0) for _ in range(2))
    once.set_level(5, now=0.0)
    for tenth in range(100):
        often.set_level(5, now=tenth / 10)
    assert once.mean(now=10.0) == pytest.approx(often.mean(now=10.0))


def test_a_clock_that_goes_back_stands_still():
    load = SmoothedLoad(now=10.0)
    load.set_level(5, now=20.0)
    before = load.mean(now=20.0)
    assert load.mean(now=5.0) == before


def test_a_memory_of_nothing_is_refused():
    with pytest.raises(InvalidInput, match="0 s"):
        SmoothedLoad(now=0.0, memory_s=0)
