"""Slots of one tier against a naive model, and the rules its docstring states."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.soak import examples
from warmturn.cache.tier_index import TierIndex
from warmturn.errors import BrokenInvariant


def filled(*keys, slots=3):
    index = TierIndex(slots)
    for key in keys:
        index.reserve(key)
        index.commit(key)
    return index


def test_the_least_recently_used_goes_first_and_of_a_chain_its_tail():
    index = filled(b"a", b"b", b"c")
    index.touch([b"a", b"b"])
    assert index.in_order() == (b"c", b"b", b"a")
    index.reserve(b"d")
    index.reserve(b"e")
    assert index.drain_evicted() == [b"c", b"b"]


def test_nothing_to_give_is_none_and_changes_nothing():
    index = filled(b"a", b"b", slots=2)
    index.pin(b"a")
    index.pin(b"b")
    assert index.reserve(b"c") is None
    assert index.in_order() == (b"a", b"b")
    assert index.drain_evicted() == []
    index.check()


def test_what_is_coming_cannot_be_read_nor_evicted():
    index = TierIndex(1)
    index.reserve(b"a")
    assert index.is_coming(b"a")
    assert not index.is_ready(b"a")
    assert index.reserve(b"b") is None
    with pytest.raises(BrokenInvariant, match="read before it is ready"):
        index.pin(b"a")


def test_condemned_content_keeps_its_slot_until_the_last_pin():
    index = filled(b"a", slots=1)
    index.pin(b"a")
    index.pin(b"a")
    index.remove(b"a")
    assert (index.is_ready(b"a"), index.num_available) == (False, 0)
    index.unpin(b"a")
    assert index.num_available == 0
    index.unpin(b"a")
    assert index.num_available == 1
    index.check()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(80), deadline=None)
def test_it_holds_what_a_naive_list_holds(seed):  # noqa: C901 - one branch per operation
    """Random reserves, commits, pins, touches and removals; slots are never shared."""
    rng = np.random.default_rng(seed)
    index = TierIndex(int(rng.integers(1, 6)))
    ready, coming, pins, slots = [], set(), {}, {}
    for _ in range(120):
        key = bytes([int(rng.integers(9))])
        action = rng.choice(["reserve", "commit", "pin", "unpin", "touch", "remove"])
        if action == "reserve" and key not in index:
            evictable = [k for k in ready if not pins.get(k)]
            is_full = len(index._entries) == index.num_slots
            slot = index.reserve(key)
            if is_full and not evictable:
                assert slot is None
                continue
            if is_full:
                ready.remove(evictable[0])
                del slots[evictable[0]]
            assert slot not in slots.values()
            slots[key] = slot
            coming.add(key)
        elif action == "commit" and key in coming:
            index.commit(key)
            coming.remove(key)
            ready.append(key)
        elif action == "pin" and key in ready:
            assert index.pin(key) == slots[key]
            pins[key] = pins.get(key, 0) + 1
        elif action == "unpin" and pins.get(key):
            index.unpin(key)
            pins[key] -= 1
            if not pins[key] and key not in ready:
                del slots[key]
        elif action == "touch" and key in ready:
            index.touch([key])
            ready.remove(key)
            ready.append(key)
        elif action == "remove" and (key in ready or key in coming):
            index.remove(key)
            coming.discard(key)
            if key in ready:
                ready.remove(key)
            if not pins.get(key):
                del slots[key]
        index.check()
        assert list(index.in_order()) == ready
        assert index.num_available == index.num_slots - len(slots) + sum(
            not pins.get(k) for k in ready
        )
