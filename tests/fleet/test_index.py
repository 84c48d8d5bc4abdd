import os
import subprocess
import sys

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.tiny_fleet import source
from warmturn.errors import BrokenInvariant, InvalidInput
from warmturn.fleet import FleetIndex, PrefixMatch, Tier

A, B = source("a"), source("b")


def hashes(*values: int):
    """Spread over the table as real ones are, and still readable: 1, 2, 3."""
    return np.array([value * 0x9E3779B97F4A7C15 % 2**64 for value in values], np.uint64)


def index_of(*sources, max_blocks: int | None = None) -> FleetIndex:
    index = FleetIndex()
    for each in sources:
        index.add_source(each, max_blocks=max_blocks)
    return index


def test_a_match_ends_at_each_sources_first_hole():
    index = index_of(A, B)
    chain = hashes(1, 2, 3, 4)
    index.store(A, chain, chain, Tier.DEVICE)
    index.store(B, hashes(1, 2, 4), hashes(1, 2, 4), Tier.DEVICE)
    found = index.match(chain)
    assert found.of(A) == PrefixMatch(device=4, near=4, anywhere=4)
    assert found.of(B) == PrefixMatch(device=2, near=2, anywhere=2)
    assert found.of(source("c")) == PrefixMatch()


def test_a_prefix_may_lie_in_several_tiers():
    index, chain = index_of(A), hashes(1, 2, 3, 4, 5)
    for tier, part in ((Tier.DEVICE, [0, 3]), (Tier.HOST, [1, 0]), (Tier.STORAGE, [2])):
        index.store(A, chain[part], chain[part], tier)
    index.store(A, chain[4:], chain[4:], Tier.OTHER)
    match = index.match(chain).of(A)
    assert match == PrefixMatch(device=1, host=2, storage=0, near=2, anywhere=5)


def test_a_block_stored_twice_survives_one_removal():
    index, one = index_of(A), hashes(1)
    for _ in range(2):
        index.store(A, one, one, Tier.DEVICE)
    assert index.remove(A, one, Tier.DEVICE) == 0
    assert index.match(one).of(A).device == 1
    assert index.remove(A, one, Tier.DEVICE) == 0
    assert index.match(one).of(A).device == 0
    assert index.remove(A, one, Tier.DEVICE) == 1, "never below zero"
    index.check()


def test_reference_counts_stop_at_their_limit_instead_of_wrapping():
    index, one = index_of(A), hashes(1)
    many = np.repeat(one, 70_000)
    index.store(A, many, many, Tier.DEVICE)
    assert index.remove(A, one, Tier.HOST) == 1, "nothing spilled into the next count"
    index.store(A, one, one, Tier.HOST)
    assert index.match(one).of(A) == PrefixMatch(device=1, host=1, near=1, anywhere=1)
    index.check()


def test_an_engines_hash_leads_to_ours_also_when_the_block_is_gone():
    index, engine, ours = index_of(A), hashes(10, 11), hashes(1, 2)
    index.store(A, engine, ours, Tier.DEVICE)
    index.remove(A, engine, Tier.DEVICE)
    assert index.names_of(A, hashes(10, 11, 12)).tolist() == [*ours.tolist(), 0]
    assert index.num_blocks == 0


def test_one_engine_hash_with_two_contents_loses_both_by_one_removal():
    index, engine = index_of(A), hashes(10)
    for name in (1, 2):
        index.store(A, engine, hashes(name), Tier.DEVICE)
    assert [index.match(hashes(n)).of(A).device for n in (1, 2)] == [1, 1]
    index.remove(A, engine, Tier.DEVICE)
    assert [index.match(hashes(n)).of(A).device for n in (1, 2)] == [0, 0]
    index.check()


def test_clearing_one_tier_keeps_the_others_and_clearing_all_forgets_the_hashes():
    index, one = index_of(A, B), hashes(1)
    for tier in (Tier.DEVICE, Tier.HOST):
        index.store(A, one, one, tier)
    index.store(B, one, one, Tier.DEVICE)
    index.clear_tier(A, Tier.DEVICE)
    assert index.match(one).of(A) == PrefixMatch(host=1, near=1, anywhere=1)
    index.clear(A)
    assert index.match(one).of(A) == PrefixMatch()
    assert index.names_of(A, one).tolist() == [0]
    assert index.match(one).of(B).device == 1
    index.check()


def test_more_than_a_source_can_hold_is_refused_and_changes_nothing():
    index = index_of(A, max_blocks=3)
    assert index.store(A, hashes(1, 2), hashes(1, 2), Tier.DEVICE)
    assert not index.store(A, hashes(3, 4), hashes(3, 4), Tier.DEVICE)
    assert index.store(A, hashes(1, 2), hashes(1, 2), Tier.HOST), "copies are not new blocks"
    assert index.store(A, hashes(3), hashes(3), Tier.DEVICE)
    assert index.num_blocks_of(A) == 3
    assert index.match(hashes(4)).of(A).device == 0
    index.check()


def test_a_limit_below_one_block_is_refused():
    with pytest.raises(InvalidInput, match="limit of 0"):
        index_of(A, max_blocks=0)


def test_sources_beyond_a_word_of_bits_stand_on_another_shelf():
    index, one = FleetIndex(), hashes(1)
    names = [source(f"r{number}") for number in range(130)]
    for name in names:
        index.add_source(name)
        index.store(name, one, one, Tier.DEVICE)
    found = index.match(one)
    assert all(found.of(name).device == 1 for name in names)
    index.remove_source(names[3])
    assert index.match(one).of(names[3]) == PrefixMatch()
    index.add_source(source("late"))
    assert index.match(one).of(source("late")) == PrefixMatch(), "a reused bit begins empty"
    index.check()


def test_a_match_stays_what_it_was_when_sources_come_and_go():
    index, one = index_of(A, B), hashes(1)
    index.store(A, one, one, Tier.DEVICE)
    found = index.match(one)
    index.remove_source(A)
    index.add_source(source("c"))
    assert found.of(A).device == 1
    assert found.of(source("c")) == PrefixMatch()


def test_removing_what_is_unknown_is_no_error():
    index = index_of(A)
    index.remove_source(B)
    assert index.remove(A, hashes(5, 6), Tier.DEVICE) == 2
    assert index.sources == (A,)


def test_churn_does_not_grow_the_tables():
    index = index_of(A, max_blocks=5000)
    rng, window, sizes = np.random.default_rng(0), [], []
    for _ in range(400):
        fresh = rng.integers(1, 2**64, 500, dtype=np.uint64)
        if len(window) == 9:
            index.remove(A, window.pop(0), Tier.DEVICE)
        index.store(A, fresh, fresh, Tier.DEVICE)
        window.append(fresh)
        sizes.append(index.num_bytes)
    assert sizes[0] == sizes[-1], "200,000 blocks through a source of 5,000"
    assert index.num_blocks == 4500
    index.check()


@pytest.mark.slow
def test_five_million_blocks_of_churn_leave_the_process_as_large_as_a_fifth_of_them():
    process, rng = psutil.Process(), np.random.default_rng(0)
    index, window, resident = index_of(A, max_blocks=100_000), [], []
    for number in range(1000):
        fresh = rng.integers(1, 2**64, 5000, dtype=np.uint64)
        if len(window) == 19:
            index.remove(A, window.pop(0), Tier.DEVICE)
        index.store(A, fresh, fresh, Tier.DEVICE)
        window.append(fresh)
        if number in {200, 999}:
            resident.append(process.memory_info().rss)
    assert resident[1] <= 1.05 * resident[0]
    index.check()


@pytest.mark.parametrize("corrupt", ["bit", "count", "key"])
def test_a_broken_table_is_named(corrupt):
    index, two = index_of(A), hashes(1, 2)
    index.store(A, two, two, Tier.DEVICE)
    index.check()
    shelf = index._shelves[0]
    row = int(np.flatnonzero(shelf.table[:, 0])[0])
    if corrupt == "bit":
        shelf.table[row, 2] |= 1
    elif corrupt == "count":
        shelf.counts[0] += 1
    else:
        shelf.table[(row + 40) % 64] = shelf.table[row]
        shelf.table[row] = 0
    with pytest.raises(BrokenInvariant, match=r"invariant [123]"):
        index.check()


class IndexMachine(RuleBasedStateMachine):
    """The index against a dictionary of counters, with few hashes so that tables wrap and fill."""

    @initialize()
    def begin(self):
        self.index = index_of(A, B)
        self.counts = {}

    @rule(who=st.sampled_from([A, B]), tier=st.sampled_from(Tier), data=st.data())
    def store(self, who, tier, data):
        values = data.draw(st.lists(st.integers(1, 60), max_size=30))
        self.index.store(who, hashes(*values), hashes(*values), tier)
        for value in values:
            self.counts[who, value, tier] = self.counts.get((who, value, tier), 0) + 1

    @rule(who=st.sampled_from([A, B]), tier=st.sampled_from(Tier), data=st.data())
    def remove(self, who, tier, data):
        values = data.draw(st.lists(st.integers(1, 60), max_size=30))
        self.index.remove(who, hashes(*values), tier)
        for value in values:
            self.counts[who, value, tier] = max(0, self.counts.get((who, value, tier), 0) - 1)

    @precondition(lambda self: self.counts)
    @rule(who=st.sampled_from([A, B]), tier=st.sampled_from(Tier))
    def clear_tier(self, who, tier):
        self.index.clear_tier(who, tier)
        self.counts = {k: n for k, n in self.counts.items() if (k[0], k[2]) != (who, tier)}

    @rule(data=st.data())
    def match(self, data):
        values = data.draw(st.lists(st.integers(1, 60), max_size=20, unique=True))
        found = self.index.match(hashes(*values))
        for who in (A, B):
            held = [[bool(self.counts.get((who, v, tier))) for tier in Tier] for v in values]
            match = found.of(who)
            assert match.device == run([h[0] for h in held])
            assert match.host == run([h[1] for h in held])
            assert match.storage == run([h[2] or h[3] for h in held])
            assert match.near == run([h[0] or h[1] for h in held])
            assert match.anywhere == run([any(h) for h in held])

    @invariant()
    def holds(self):
        if hasattr(self, "index"):
            self.index.check()


def run(held: list[bool]) -> int:
    return held.index(False) if False in held else len(held)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_without_numba_the_same_code_gives_the_same_answers():
    script = """
import sys
sys.modules["numba"] = None
import warnings
warnings.simplefilter("error")
from tests.fleet.test_index import *
test_a_match_ends_at_each_sources_first_hole()
test_a_prefix_may_lie_in_several_tiers()
test_a_block_stored_twice_survives_one_removal()
test_one_engine_hash_with_two_contents_loses_both_by_one_removal()
test_clearing_one_tier_keeps_the_others_and_clearing_all_forgets_the_hashes()
test_sources_beyond_a_word_of_bits_stand_on_another_shelf()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
