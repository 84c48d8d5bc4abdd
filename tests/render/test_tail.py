"""What new messages add to a prompt equals what the whole prompt ends with, or is refuted."""

import pytest

from tests.support import tiny_prompts
from tests.support.tiny_prompts import ALTERNATING, CHATML, DEFAULT_SYSTEM, NO_SYSTEM, NOW, NUMBERED
from warmturn.render.tail import Framing, TailProofs, TailRenderer, kind_of

FIRST = [{"role": "user", "content": "one"}]
NEW = [{"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]


def tails(directory, template, **framing) -> TailRenderer:
    return TailRenderer(tiny_prompts.renderer(directory, template), Framing(NOW, **framing))


@pytest.mark.parametrize("template", [CHATML, DEFAULT_SYSTEM, ALTERNATING, NO_SYSTEM])
def test_a_tail_is_what_the_whole_prompt_ends_with(tmp_path, template):
    made = tails(tmp_path, template)
    before, after, tail = made.whole(FIRST), made.whole(FIRST + NEW), made.tail(NEW)
    assert before.history + tail.history == after.history
    assert tail.opening == after.opening == "<|im_start|>assistant\n"
    assert "three" in tail.history


def test_without_new_messages_only_the_opening_is_left(tmp_path):
    tail = tails(tmp_path, CHATML).tail([])
    assert (tail.history, tail.opening) == ("", "<|im_start|>assistant\n")


def test_a_template_that_counts_gives_a_wrong_tail_and_a_whole_that_shows_it(tmp_path):
    made = tails(tmp_path, NUMBERED)
    joined = made.whole(FIRST + NEW).history + made.tail(NEW).history
    assert joined != made.whole(FIRST + NEW + NEW).history


def test_a_template_that_takes_no_stub_has_no_tails(tmp_path):
    assert tails(tmp_path, "{{ raise_exception('never') }}").tail(NEW) is None


def test_arguments_of_the_template_reach_it(tmp_path):
    template = CHATML + "{% if think and add_generation_prompt %}<think>{% endif %}"
    assert tails(tmp_path, template, kwargs={"think": True}).tail(NEW).opening.endswith("<think>")


def test_kinds_differ_by_role_and_field_and_not_by_text():
    plain, thinking = (
        {"role": "assistant", "content": "x"},
        {"role": "assistant", "content": "", "reasoning": "y"},
    )
    assert kind_of([plain]) == kind_of([{"content": "z", "role": "assistant"}])
    assert len({kind_of([plain]), kind_of([thinking]), kind_of([plain, plain])}) == 3


def test_proofs_become_rarer_and_a_refuted_kind_is_not_written_again():
    proofs, kind = TailProofs(), kind_of(NEW)
    wanted = [number for number in range(1, 40) if proofs.is_wanted(kind, num_tails=9)]
    assert wanted == [1, 2, 3, 4, 8, 16, 32]
    assert proofs.is_wanted(kind, num_tails=0)  # its first tails are counted apart
    assert proofs.allows(kind)
    proofs.refute(kind)
    assert not proofs.allows(kind)
    assert proofs.allows(kind_of(FIRST))
