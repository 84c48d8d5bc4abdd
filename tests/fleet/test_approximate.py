import numpy as np

from tests.support.tiny_fleet import chain, source
from warmturn.fleet import ApproximateSource, FleetIndex

A = source("a")


def made(num_blocks: int) -> tuple[FleetIndex, ApproximateSource]:
    index = FleetIndex()
    return index, ApproximateSource(A, index, num_blocks=num_blocks, block_size=4)


def tokens(number: int, length: int = 16) -> list[int]:
    return [number * 1000 + i for i in range(length)]


def held(index: FleetIndex, number: int, length: int = 16) -> int:
    return index.match(chain(tokens(number, length))).of(A).device


def test_what_was_routed_there_is_believed_at_once():
    index, approximate = made(100)
    approximate.routed(chain(tokens(1)), now=0.0)
    assert (held(index, 1), held(index, 2)) == (4, 0)


def test_the_least_recently_used_goes_tail_first_when_the_capacity_is_full():
    index, approximate = made(10)
    for now, number in enumerate((1, 2, 1, 3)):
        approximate.routed(chain(tokens(number)), now=float(now))
    assert [held(index, n) for n in (1, 2, 3)] == [4, 2, 4]
    index.check()


def test_a_full_hit_keeps_all_its_blocks_in_a_pool_of_just_that_size():
    index, approximate = made(4)
    for now in range(3):
        approximate.routed(chain(tokens(1)), now=float(now))
        assert held(index, 1) == 4
    index.check()


def test_of_a_prompt_beyond_the_capacity_the_beginning_is_believed():
    index, approximate = made(3)
    approximate.routed(chain(tokens(1, 40)), now=0.0)
    assert held(index, 1, 40) == 3
    approximate.routed(chain([1, 2]), now=1.0)
    index.check()


def test_answers_that_fall_short_shrink_what_is_believed_and_good_ones_restore_it():
    index, approximate = made(100)
    for _ in range(20):
        approximate.answered(predicted_tokens=400, delivered_tokens=100)
    assert approximate.usable_blocks < 40
    for number in range(20):
        approximate.routed(chain(tokens(number)), now=float(number))
    assert index.num_blocks <= 40
    for _ in range(200):
        approximate.answered(predicted_tokens=400, delivered_tokens=400)
    assert approximate.usable_blocks == 100


def test_one_block_less_than_predicted_is_no_shortfall():
    _, approximate = made(100)
    approximate.answered(predicted_tokens=400, delivered_tokens=398)
    assert approximate.usable_blocks == 100


def test_a_restart_forgets_all():
    index, approximate = made(100)
    approximate.routed(chain(tokens(1)), now=0.0)
    approximate.forget()
    assert held(index, 1) == 0
    approximate.routed(chain(tokens(1)), now=1.0)
    assert held(index, 1) == 4


def test_belief_is_the_pool_whatever_is_routed():
    index, approximate = made(30)
    rng = np.random.default_rng(0)
    for now in range(300):
        number, length = int(rng.integers(8)), int(rng.integers(4, 60))
        approximate.routed(chain(tokens(number, length)), now=float(now))
        assert index.num_blocks == approximate._pool.num_cached
    index.check()
