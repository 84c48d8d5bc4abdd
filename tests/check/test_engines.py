import pytest

from warmturn.check.engines import ENGINES, default_block_tokens, lost_to
from warmturn.cost.reuse import cost_of


def cost(shared):
    """A turn after a prompt of 900 tokens and a reply of 101, of which `shared` are left."""
    return cost_of(
        prompt_tokens=1100,
        earlier_prompt_tokens=900,
        generated_tokens=101,
        shared_tokens=shared,
        block_size=16,
    )


@pytest.mark.parametrize(
    ("engine", "block_tokens", "lost"),
    [("paged", 16, 992 - 592), ("block-quantised", 512, 512 - 512), ("exact-end", 16, 1000)],
)
def test_each_engine_loses_what_it_could_have_resumed(engine, block_tokens, lost):
    assert lost_to(cost(600), engine, block_tokens=block_tokens) == lost


def test_a_break_before_the_saved_state_loses_it():
    assert lost_to(cost(500), "block-quantised", block_tokens=512) == 512


@pytest.mark.parametrize("engine", ENGINES)
def test_a_turn_that_appends_loses_nothing(engine):
    assert lost_to(cost(1000), engine, block_tokens=16) == 0


def test_the_usual_steps_are_those_of_the_checker():
    assert [default_block_tokens(engine) for engine in ENGINES] == [16, 512, 16]
