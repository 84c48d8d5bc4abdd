import pytest

from warmturn.cost import ConversationShape
from warmturn.errors import InvalidInput


def test_whole_blocks_cost_a_little_more_than_perfect_reuse():
    """By hand: turn 2 finds 10 + 4 + 5 = 19 tokens, so four blocks of four of its 24."""
    shape = ConversationShape(system_tokens=10, user_tokens=4, reply_tokens=6, num_turns=2)
    assert shape.prompt_tokens(2) == 24
    assert shape.warm_tokens_in_blocks(4) == 14 + (24 - 16)
    assert shape.warm_tokens_in_blocks(1) == 14 + (24 - 19)
    assert shape.warm_tokens == 14 + 4


def test_a_single_turn_has_nothing_to_reuse():
    shape = ConversationShape(num_turns=1)
    assert shape.cold_tokens == shape.warm_tokens == shape.warm_tokens_in_blocks(16) == 1650


@pytest.mark.parametrize(
    "wrong", [{"user_tokens": 0}, {"num_turns": 0}, {"reply_tokens": -1}, {"system_tokens": -1}]
)
def test_shapes_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InvalidInput):
        ConversationShape(**wrong)
