"""Two generations: what is used stays, what is not goes, and the bound holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.render.segment_cache import SegmentCache


def _ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


@pytest.fixture
def cache():
    """Room for two small segments in each generation."""
    probe = SegmentCache(capacity_bytes=10_000)
    probe.put("a", _ids(1))
    return SegmentCache(capacity_bytes=4 * probe.num_bytes)


def test_what_was_put_is_found(cache):
    cache.put("a", _ids(1))
    assert cache.get("a").tolist() == [1]
    assert cache.get("b") is None


def test_several_are_found_as_one_by_one(cache):
    for name in "abc":  # "a" is in the old generation by now
        cache.put(name, _ids(ord(name)))
    found = cache.get_all(["a", "x", "c", "a"])
    assert [None if ids is None else ids.tolist() for ids in found] == [[97], None, [99], [97]]


def test_kept_ids_cannot_be_changed(cache):
    ids = _ids(1)
    cache.put("a", ids)
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 2


def test_a_segment_that_is_used_outlives_those_that_are_not(cache):
    for round_ in range(5):
        cache.put("k", _ids(7)) if round_ == 0 else None
        for name in "ab":
            cache.put(f"{name}{round_}"[:1] + chr(65 + round_), _ids(1))
            assert cache.get("k") is not None
    assert cache.get("aA") is None


def test_a_segment_over_half_the_capacity_is_not_kept(cache):
    cache.put("x" * cache.capacity_bytes, _ids(1))
    assert len(cache) == 0
    assert cache.num_bytes == 0


def test_putting_the_same_segment_again_costs_nothing(cache):
    cache.put("a", _ids(1))
    num_bytes = cache.num_bytes
    cache.put("a", _ids(1))
    assert (len(cache), cache.num_bytes) == (1, num_bytes)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefghijklmnop"), st.integers(0, 40)), min_size=20, max_size=80
    )
)
def test_the_bound_holds_and_answers_are_right(steps):
    cache = SegmentCache(capacity_bytes=3000)
    for name, length in steps:
        ids = cache.get(name)
        if ids is None:
            cache.put(name, np.full(length, ord(name), dtype=np.int32))
        else:
            assert set(ids.tolist()) <= {ord(name)}
        assert cache.num_bytes <= cache.capacity_bytes
