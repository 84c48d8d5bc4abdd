import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.blocks import ImageKey
from warmturn.errors import InvalidInput
from warmturn.fleet import GrowingChain, IndexScope, index_chain

PIECES = st.lists(st.lists(st.integers(0, 50), max_size=40), max_size=12)
SCOPES = st.sampled_from([IndexScope(), IndexScope(salt="s"), IndexScope(salt="s", adapter="a")])


def ids(tokens):
    return np.array(tokens, np.int32)


@given(PIECES, SCOPES, st.sampled_from([1, 3, 4]))
def test_it_equals_the_chain_of_all_its_tokens(pieces, scope, size):
    chain, so_far = GrowingChain(scope, block_size=size), []
    for piece in pieces:
        whole = index_chain(ids(so_far + piece), scope, block_size=size)
        np.testing.assert_array_equal(chain.with_tail(ids(piece)), whole)
        chain.append(ids(piece))
        so_far += piece
        np.testing.assert_array_equal(chain.with_tail(ids([])), whole)
        assert chain.num_tokens == len(so_far)


@given(PIECES, PIECES)
def test_cut_back_it_goes_on_as_if_nothing_had_been(first, second):
    chain, expected = (GrowingChain(IndexScope(), block_size=3) for _ in range(2))
    for piece in first:
        chain.append(ids(piece))
        expected.append(ids(piece))
    place = chain.num_blocks, chain.open_tokens
    for piece in second:
        chain.append(ids(piece))
    chain.cut(*place)
    np.testing.assert_array_equal(chain.with_tail(ids([7] * 9)), expected.with_tail(ids([7] * 9)))


def test_a_tail_that_needs_more_room_is_whole():
    chain = GrowingChain(IndexScope(), block_size=1)
    chain.append(ids(range(64)))
    assert len(chain.with_tail(ids([1]))) == 65


def test_blocks_of_nothing_and_images_are_refused():
    with pytest.raises(InvalidInput, match="at least 1 token"):
        GrowingChain(IndexScope(), block_size=0)
    image = ImageKey("hash", 0, 4)
    with pytest.raises(InvalidInput, match="no images"):
        GrowingChain(IndexScope(images=(image,)), block_size=4)
