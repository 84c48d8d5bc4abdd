import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from warmturn.check.compare import (
    Replacement,
    first_replacement,
    last_token_chars,
    shared_chars,
    shared_tokens,
)

TEXTS = st.text(alphabet="ab<\n", max_size=30)


@given(TEXTS, TEXTS, TEXTS)
def test_shared_chars_is_the_length_of_the_common_prefix(head, left, right):
    left, right = head + left, head + right
    shared = shared_chars(left, right)
    assert left[:shared] == right[:shared]
    assert shared == min(len(left), len(right)) or left[shared] != right[shared]


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_shared_tokens_agrees_with_shared_chars(left, right):
    as_text = shared_chars("".join(map(str, left)), "".join(map(str, right)))
    assert shared_tokens(np.array(left, np.int32), np.array(right, np.int32)) == as_text


def test_the_last_token_is_a_special_one_or_not_known():
    assert last_token_chars("done<|im_end|>") == 10
    assert last_token_chars("done</s>") == 4
    assert last_token_chars("a < b >") == 0
    assert last_token_chars("") == 0


def ids(*values):
    return np.array(values, np.int32)


def test_a_replacement_is_the_smallest_change_after_which_both_go_on():
    left, right = ids(1, 2, 3, 4, 5, 6, 7), ids(1, 9, 3, 4, 5, 6, 7)
    assert first_replacement(left, right) == Replacement(1, 2, 2)
    assert first_replacement(left, ids(1, 9, 2, 3, 4, 5)) == Replacement(1, 1, 2)
    assert first_replacement(left, ids(1, 4, 5, 6, 7, 8)) == Replacement(1, 3, 1)
    assert first_replacement(left, ids(1, 8, 8, 8)) is None


def test_one_id_that_agrees_by_chance_is_not_going_on():
    left, right = ids(1, 2, 3, 4, 5, 6, 7), ids(1, 9, 3, 9, 4, 5, 6, 7)
    assert first_replacement(left, right) == Replacement(1, 3, 4)
