import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmturn.blocks import CacheScope, ChainBuilder, ImageKey, chain_words, scheme_named
from warmturn.errors import InvalidInput, InvalidRequest

NATIVE = scheme_named("native")
SCOPE = CacheScope("m")


def ids(*values):
    return np.array(values, np.int32)


def chain(*token_ids, scope=SCOPE, block_size=4):
    builder = ChainBuilder(scope, block_size=block_size, scheme=NATIVE)
    builder.extend(ids(*token_ids))
    return builder


def test_only_full_blocks_are_hashed():
    assert [chain(*range(n)).num_blocks for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]
    assert chain(*range(7)).num_tokens == 7


def test_equal_prefixes_have_equal_hashes_up_to_the_first_difference():
    one, other = (
        chain(1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9),
        chain(1, 2, 3, 4, 5, 6, 7, 0, 9, 9, 9, 9),
    )
    assert [one.digest(i) == other.digest(i) for i in range(3)] == [True, False, False]


def test_words_are_the_digests_in_native_order():
    built = chain(*range(8))
    assert built.words.shape == (2, 4)
    assert built.words.dtype == np.uint64
    assert built.words.tobytes() == built.digest(0) + built.digest(1)
    assert len(built.digest(0)) == 32


def test_the_root_is_no_block_and_is_the_parent_of_the_first():
    built = chain(*range(4))
    assert built.root != built.digest(0)
    assert built.root == NATIVE.root(SCOPE, 4)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=11), max_size=6),
    st.integers(1, 5),
    st.sampled_from(["native", "sha256", "sha256_cbor"]),
)
def test_appending_piece_by_piece_gives_the_chain_of_the_whole(pieces, block_size, name):
    scope = CacheScope("m", salt="s", images=(ImageKey("h", 3, 9),))
    scheme = scheme_named(name)
    grown = ChainBuilder(scope, block_size=block_size, scheme=scheme)
    for piece in pieces:
        grown.extend(ids(*piece))
    whole = ids(*(token for piece in pieces for token in piece))
    once = chain_words(whole, scope, block_size=block_size, scheme=scheme)
    assert grown.words.tobytes() == once.tobytes()
    assert grown.num_tokens == len(whole)
    assert grown.num_blocks == len(whole) // block_size


def test_words_handed_out_stay_true_while_the_chain_grows():
    built = chain(*range(4))
    early = built.words
    before = early.tobytes()
    for start in range(4, 400, 4):
        built.extend(ids(*range(start, start + 4)))
    assert early.tobytes() == before == built.words[:1].tobytes()


def test_reading_words_copies_nothing_and_cannot_change_the_chain():
    built = chain(*range(8))
    assert np.shares_memory(built.words, built.words)
    with pytest.raises(ValueError, match="read-only"):
        built.words[0, 0] = 0


def test_a_reused_input_array_does_not_change_the_chain():
    buffer = ids(1, 2, 3)
    built = ChainBuilder(SCOPE, block_size=4, scheme=NATIVE)
    built.extend(buffer)
    buffer[:] = 9
    built.extend(ids(4))
    assert built.digest(0) == chain(1, 2, 3, 4).digest(0)


def test_strided_and_wide_arrays_are_taken_by_value():
    spread = np.arange(16, dtype=np.int64)[::2]
    words = chain_words(spread, SCOPE, block_size=4, scheme=NATIVE)
    assert words.tobytes() == chain(*range(0, 16, 2)).words.tobytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.array([1, -1]), "token id -1 at position 1 "),
        (np.array([2**31]), "token id 2147483648 at position 0 "),
        (np.array([0, 2**63], np.uint64), "token id 9223372036854775808 at position 1 "),
        (np.array([1.0]), "float64 in 1 dimensions"),
        (np.array([True]), "bool in 1 dimensions"),
        (np.array([[1]]), "int64 in 2 dimensions"),
        (np.array(["1"]), "dimensions"),
    ],
)
def test_wrong_tokens_are_refused_and_change_nothing(wrong, message):
    built = chain(1, 2, 3)
    with pytest.raises(InvalidRequest, match=message) as caught:
        built.extend(wrong)
    assert caught.value.param == "prompt"
    built.extend(ids(4))
    assert built.digest(0) == chain(1, 2, 3, 4).digest(0)


@pytest.mark.parametrize("index", [-1, 1, 99])
def test_a_block_that_is_not_full_has_no_digest(index):
    with pytest.raises(IndexError, match=f"block {index} was asked for; the chain has 1 full"):
        chain(*range(7)).digest(index)


@pytest.mark.parametrize("block_size", [0, -1])
def test_a_block_holds_at_least_one_token(block_size):
    with pytest.raises(InvalidInput, match=f"block size {block_size}"):
        ChainBuilder(SCOPE, block_size=block_size, scheme=NATIVE)


def test_extra_keys_are_given_in_the_form_of_events():
    built = chain(*range(12), scope=CacheScope("m", salt="s", images=(ImageKey("h", 5, 1),)))
    assert [built.extra_keys(i) for i in range(3)] == [("s",), (("h", 1),), None]
