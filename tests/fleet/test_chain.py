import numpy as np
import pytest

from tests.support.tiny_fleet import chain
from warmturn.blocks import ImageKey
from warmturn.errors import InvalidInput
from warmturn.fleet import IndexScope, index_chain
from warmturn.fleet.chain import extend_chain, mix, root_of

TOKENS = list(range(100, 140))


def test_equal_beginnings_have_equal_hashes_up_to_the_first_block_that_differs():
    other = [*TOKENS[:21], 7, *TOKENS[22:]]
    one, two = chain(TOKENS), chain(other)
    assert len(one) == 10
    assert (one == two).tolist() == [True] * 5 + [False] * 5


def test_a_chain_goes_on_from_any_of_its_hashes():
    whole = chain(TOKENS)
    for cut in range(1, 10):
        rest = np.array(TOKENS[4 * cut :], np.int32).reshape(-1, 4)
        assert extend_chain(int(whole[cut - 1]), rest).tolist() == whole[cut:].tolist()


def test_the_sum_over_the_chain_is_the_recurrence_written_out():
    whole, step = chain(TOKENS), root_of(None)
    for index, expected in enumerate(whole):
        block = np.array([TOKENS[4 * index : 4 * index + 4]], np.int32)
        step = int(extend_chain(step, block)[0])
        assert step == expected


@pytest.mark.parametrize(
    "scope",
    [{"salt": "a"}, {"adapter": "a"}, {"salt": "null"}, {"salt": "a", "adapter": "a"}],
)
def test_salt_and_adapter_change_every_hash_and_are_not_each_other(scope):
    scopes = [{}, {"salt": "a"}, {"adapter": "a"}, {"salt": "null"}]
    others = [s for s in scopes if s != scope]
    assert all((chain(TOKENS, **scope) != chain(TOKENS, **s)).all() for s in others)


def test_an_image_counts_from_the_first_block_it_covers():
    image = ImageKey("cat", offset=6, length=3)
    plain, cat = chain(TOKENS), chain(TOKENS, images=(image,))
    dog = chain(TOKENS, images=(ImageKey("dog", 6, 3),))
    assert (plain == cat).tolist() == [True] + [False] * 9
    assert (dog == cat).tolist() == [True] + [False] * 9


def test_blocks_in_another_order_are_another_chain():
    swapped = [*TOKENS[4:8], *TOKENS[:4], *TOKENS[8:]]
    assert (chain(TOKENS)[1:] != chain(swapped)[1:]).all()


def test_a_sequence_without_a_full_block_has_no_hash_and_block_size_0_is_refused():
    assert len(chain([1, 2, 3])) == 0
    with pytest.raises(InvalidInput, match="block size 0"):
        index_chain(np.array([1], np.int32), IndexScope(), block_size=0)


def test_hashes_spread_over_all_bits_and_never_collide_in_small_numbers():
    hashes = chain(list(range(80_000)))
    assert len(set(hashes.tolist())) == 20_000
    halves = hashes >> np.uint64(63)
    assert 0.48 < halves.mean() < 0.52
    small = mix(np.arange(1, 1001, dtype=np.uint64))
    assert 0.45 < (small >> np.uint64(63)).mean() < 0.55
