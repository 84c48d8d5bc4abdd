"""Worked examples on a pool of six blocks of four tokens, the free queue written out."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from warmturn.cache.pool import Pool
from warmturn.errors import BrokenInvariant, InvalidInput, NeverFits


def chain(*names):
    """A chain whose blocks are named by small numbers, as in a trace."""
    words = np.zeros((len(names), 4), np.uint64)
    words[:, 0] = names
    return words


NOTHING = chain()


@pytest.fixture
def pool():
    return Pool(num_blocks=6, block_size=4)


def finish(pool, name, words, num_tokens, *, now):
    """Run one request to its end: allocate, store its full blocks, release."""
    hits = pool.allocate(name, words, num_tokens, now=now)
    pool.store(name, words, now=now)
    pool.release(name, now=now)
    pool.check()
    return hits


def test_a_new_pool_is_free_in_order_of_ids(pool):
    assert pool.free_queue() == [0, 1, 2, 3, 4, 5]
    assert (pool.num_free, pool.num_cached) == (6, 0)
    pool.check()


def test_blocks_come_from_the_front_and_the_tail_of_a_chain_returns_first(pool):
    assert pool.allocate("a", chain(1, 2), 11, now=0.0) == 0
    assert pool.table("a").tolist() == [0, 1, 2]
    assert pool.free_queue() == [3, 4, 5]
    assert pool.store("a", chain(1, 2), now=1.0).tolist() == [1, 1]
    pool.release("a", now=2.0)
    # Block 2 was never full: front. Then 1 (the tail) before 0 (the head).
    assert pool.free_queue() == [2, 3, 4, 5, 1, 0]
    pool.check()


def test_the_next_turn_takes_its_prefix_out_of_the_queue(pool):
    finish(pool, "turn 1", chain(1, 2), 9, now=0.0)
    assert pool.match(chain(1, 2, 3)) == 2
    assert pool.allocate("turn 2", chain(1, 2, 3), 14, now=5.0) == 2
    assert pool.table("turn 2").tolist() == [0, 1, 2, 3]
    assert pool.free_queue() == [4, 5]
    assert pool.drain().reuse_gap_s.tolist() == [5.0, 5.0]
    pool.check()


def test_a_full_hit_leaves_the_last_token_to_compute(pool):
    """Eight tokens are two full blocks; a hit of both would leave nothing to sample from."""
    finish(pool, "a", chain(1, 2), 8, now=0.0)
    assert pool.allocate("b", chain(1, 2), 8, now=1.0) == 1
    pool.check()


def test_eviction_takes_the_least_recently_used_tail_first(pool):
    finish(pool, "old", chain(1, 2), 8, now=0.0)
    finish(pool, "new", chain(11, 12), 8, now=1.0)
    assert pool.free_queue() == [4, 5, 1, 0, 3, 2]
    pool.allocate("big", NOTHING, 12, now=3.0)
    assert pool.match(chain(1, 2)) == 1, "the tail of the old chain went, its head stayed"
    assert pool.match(chain(11, 12)) == 2
    changes = pool.drain()
    assert changes.evicted[:, 0].tolist() == [2]
    assert (changes.lifetime_s.tolist(), changes.idle_s.tolist()) == ([3.0], [3.0])
    assert len(pool.drain().evicted) == 0, "drained once"
    pool.check()


def test_touch_makes_a_prefix_the_last_to_go(pool):
    finish(pool, "a", chain(1, 2), 8, now=0.0)
    finish(pool, "b", chain(11, 12), 8, now=1.0)
    assert pool.touch(chain(1, 2, 3), now=2.0) == 2
    assert pool.free_queue() == [4, 5, 3, 2, 1, 0]
    pool.check()


def test_a_shared_prefix_is_held_until_its_last_user_leaves(pool):
    words = chain(1, 2)
    pool.allocate("a", words, 9, now=0.0)
    pool.store("a", words, now=0.0)
    assert pool.allocate("b", words, 9, now=1.0) == 2
    pool.release("a", now=2.0)
    assert pool.free_queue() == [2, 4, 5]
    assert pool.table("b").tolist()[:2] == [0, 1]
    pool.release("b", now=3.0)
    assert pool.free_queue()[-2:] == [1, 0]
    pool.check()


def test_equal_content_computed_twice_ends_in_one_slot(pool):
    """Two requests with one new prompt run at once; the second to store gives its copy back."""
    words = chain(1, 2)
    pool.allocate("a", words, 9, now=0.0)
    pool.allocate("b", words, 9, now=0.0)
    assert pool.table("b").tolist() == [3, 4, 5]
    assert pool.store("a", words, now=1.0).tolist() == [1, 1]
    assert pool.store("b", words, now=1.0).tolist() == [0, 0]
    assert pool.table("b").tolist() == [0, 1, 5]
    assert pool.free_queue() == [4, 3]
    pool.check()
    pool.release("a", now=2.0)
    pool.release("b", now=2.0)
    assert pool.match(words) == 2
    pool.check()


def test_a_duplicate_of_idle_content_takes_it_out_of_the_queue(pool):
    finish(pool, "a", chain(1), 4, now=0.0)
    pool.allocate("b", NOTHING, 8, now=1.0)  # was admitted without a look at the cache
    pool.store("b", chain(1, 2), now=1.0)
    assert pool.table("b").tolist() == [0, 2]
    assert pool.free_queue() == [1, 3, 4, 5]
    pool.check()


def test_not_now_changes_nothing(pool):
    finish(pool, "a", chain(1, 2), 8, now=0.0)
    pool.allocate("b", NOTHING, 12, now=1.0)
    before = pool.free_queue()
    assert pool.allocate("c", chain(1, 2, 3), 21, now=2.0) is None
    assert pool.append("b", 28 - 4, now=2.0) is True
    assert pool.free_queue() != before
    before = pool.free_queue()
    assert pool.allocate("c", NOTHING, 4, now=2.0) is None
    assert pool.free_queue() == before
    pool.check()


def test_hits_count_against_the_free_blocks_they_leave_the_queue_from(pool):
    """Two idle hits and four new blocks need all six; a seventh block does not exist."""
    finish(pool, "a", chain(1, 2), 8, now=0.0)
    pool.allocate("held", NOTHING, 4, now=1.0)
    before = pool.free_queue()
    assert pool.allocate("b", chain(1, 2), 24, now=2.0) is None
    assert pool.free_queue() == before
    assert pool.allocate("b", chain(1, 2), 20, now=2.0) == 2
    assert pool.num_free == 0
    pool.check()


def test_never_is_an_error_that_changes_nothing(pool):
    with pytest.raises(NeverFits, match=r"'a' needs 7 blocks of 4 tokens, the pool has 6"):
        pool.allocate("a", NOTHING, 25, now=0.0)
    pool.allocate("a", NOTHING, 4, now=0.0)
    with pytest.raises(NeverFits):
        pool.append("a", 25, now=0.0)
    assert pool.table("a").tolist() == [0]
    pool.check()


def test_append_adds_a_block_only_when_the_last_one_is_full(pool):
    pool.allocate("a", NOTHING, 4, now=0.0)
    assert pool.append("a", 4, now=0.0)
    assert pool.table("a").tolist() == [0]
    assert pool.append("a", 5, now=0.0)
    assert pool.table("a").tolist() == [0, 1]
    pool.check()


def test_explicit_eviction_follows_the_queue(pool):
    finish(pool, "a", chain(1, 2), 8, now=0.0)
    assert pool.evict(1, now=4.0) == 1
    assert pool.match(chain(1, 2)) == 1
    assert pool.evict(9, now=4.0) == 1
    assert (pool.num_cached, pool.num_free) == (0, 6)
    assert pool.drain().evicted[:, 0].tolist() == [2, 1]
    pool.check()


def test_reset_forgets_everything_unless_blocks_are_held(pool):
    finish(pool, "a", chain(1, 2), 8, now=0.0)
    pool.allocate("b", chain(1), 5, now=1.0)
    assert pool.reset() is False
    assert pool.match(chain(1, 2)) == 2
    pool.release("b", now=1.0)
    assert pool.reset() is True
    assert (pool.match(chain(1)), pool.num_cached, pool.num_free) == (0, 0, 6)
    pool.check()


def test_hash_of_tells_the_content_of_a_slot(pool):
    finish(pool, "a", chain(7), 4, now=0.0)
    assert pool.hash_of(0).tolist() == [7, 0, 0, 0]
    assert pool.hash_of(1) is None


def test_hashes_that_collide_in_the_index_are_told_apart(pool):
    """Same home place, different words: the search walks on and removal closes the gap."""
    near = chain(1, 1, 1)
    near[:, 3] = [0, 1, 2]
    for i in range(3):
        finish(pool, f"r{i}", near[i : i + 1], 4, now=float(i))
    assert [pool.match(near[i : i + 1]) for i in range(3)] == [1, 1, 1]
    pool.allocate("x", NOTHING, 16, now=9.0)  # evicts the first
    assert [pool.match(near[i : i + 1]) for i in range(3)] == [0, 1, 1]
    pool.check()


def test_a_pool_without_blocks_is_refused():
    with pytest.raises(InvalidInput, match="0 blocks of 16 tokens"):
        Pool(num_blocks=0, block_size=16)


def test_storing_more_blocks_than_are_held_is_our_own_fault(pool):
    pool.allocate("a", NOTHING, 4, now=0.0)
    with pytest.raises(BrokenInvariant, match="stores 2 blocks and holds 1"):
        pool.store("a", chain(1, 2), now=0.0)


@pytest.mark.parametrize(
    ("number", "break_it"),
    [
        (1, lambda s: s.ref_count.__setitem__(5, 1)),
        (3, lambda s: s.counts.__setitem__(0, 3)),
        (4, lambda s: s.buckets.__setitem__(slice(None), -1)),
        (5, lambda s: s.parent.__setitem__(0, 1)),
        (7, lambda s: s.parent.__setitem__(3, -1)),
    ],
)
def test_check_names_the_broken_invariant(pool, number, break_it):
    finish(pool, "a", chain(1, 2), 8, now=0.0)
    pool.allocate("b", chain(11, 12), 8, now=1.0)
    pool.store("b", chain(11, 12), now=1.0)
    pool.check()
    break_it(pool._state)
    with pytest.raises(BrokenInvariant, match=f"invariant {number} "):
        pool.check()


@pytest.mark.slow
def test_the_interpreted_pool_passes_the_same_tests():
    """Without numba the same functions run interpreted; run this file again that way."""
    if os.environ.get("NUMBA_DISABLE_JIT"):
        pytest.skip("this is that run")
    here = Path(__file__)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, str(here), str(here.with_name("test_pool_machine.py"))],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert " passed" in result.stdout
