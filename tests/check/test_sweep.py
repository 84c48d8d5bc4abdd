"""Each family of faults in the smallest template that has it."""

import pytest

from tests.support.logged import PLAIN as PLAIN_WITH_END
from warmturn.check.shapes import SHAPES
from warmturn.check.sweep import sweep_template

PLAIN = PLAIN_WITH_END.replace("<|end|>", "<|eot|>")
"""`<|end|>` ends reasoning too, in one family: a template that has it may know of reasoning."""

MESSAGE = "<|{{ m.role }}|>"
THINKS = PLAIN.replace(
    MESSAGE,
    MESSAGE + "{% if m.reasoning_content and (keep_thinking or loop.index0 > ns.last) %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}",
).replace(
    "{% for m in messages %}",
    "{% set ns = namespace(last=-1) %}{% for m in messages if m.role == 'user' %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
    "{% endfor %}{% for m in messages %}",
    1,
)


def shapes_of(source, **special_tokens):
    sweep = sweep_template(source, name="t", special_tokens=special_tokens)
    assert sweep.error is None
    return {shape.shape: shape for shape in sweep.shapes}


def breaks(source):
    return {name for name, shape in shapes_of(source).items() if shape.verdict == "break"}


def test_a_plain_template_breaks_only_where_arguments_are_written_again():
    assert breaks(PLAIN) == {"compact-arguments"}


def test_a_template_that_trims_breaks_in_the_models_words():
    found = shapes_of(PLAIN.replace("{{ m.content }}", "{{ m.content | trim }}"))["white-space"]
    assert (found.cause, found.place) == ("template.content_trimmed", "generated")
    assert found.lost_chars > 0


def test_white_space_that_a_template_trims_in_part_is_counted_once():
    source = PLAIN.replace("{{ m.content }}", "{{ m.content.strip('\\n') }}")
    found = shapes_of(source)["white-space"]
    assert "<|assistant|>\n Answer one. \n\n<|eot|>" in found.earlier_at
    assert found.cause == "template.content_trimmed"


def test_a_date_breaks_the_next_day():
    found = shapes_of("{{ strftime_now('%d %b %Y') }}" + PLAIN)
    assert found["plain"].verdict == "append-only"
    assert (found["next-day"].cause, found["next-day"].place) == (
        "template.date_in_template",
        "prompt",
    )


def test_reasoning_dropped_at_a_new_question_breaks():
    found = shapes_of(THINKS)
    assert found["plain"].verdict == "append-only"
    assert found["thinking"].cause == "template.reasoning_stripped_on_new_user_turn"
    assert found["tool-then-user"].place == "prompt"


def test_a_generation_prompt_that_history_lacks_breaks_there():
    source = PLAIN.replace("<|assistant|>{% endif %}", "<|assistant|><think>\n{% endif %}")
    found = shapes_of(source)["plain"]
    assert (found.cause, found.place) == (
        "template.generation_prompt_not_in_history",
        "generation-prompt",
    )


def test_a_switch_that_cures_a_shape_is_found_by_rendering():
    source = PLAIN.replace(
        "{{ m.content }}", "{{ m.content if trim_content == false else m.content | trim }}"
    )
    found = shapes_of(source)["white-space"]
    assert [fix.change for fix in found.fixes] == ["set trim_content=False in chat_template_kwargs"]
    assert found.fixes[0].share_after == 1.0


def test_a_shape_the_template_refuses_is_not_compared():
    found = shapes_of("{% if tools %}{{ raise_exception('none') }}{% endif %}" + PLAIN)
    assert found["tools"].verdict is None
    assert "none" in found["tools"].detail
    assert found["plain"].verdict == "append-only"


@pytest.mark.parametrize("source", ["{% if %}", "{{ 'a' * }}", "{% unknown %}"])
def test_a_template_that_does_not_compile_is_said_and_not_raised(source):
    sweep = sweep_template(source, name="bad", special_tokens={})
    assert sweep.shapes == ()
    assert "not valid Jinja" in sweep.error
    assert not sweep.renders


@pytest.mark.parametrize(
    "source", ["{{ 1 / 0 }}", "{{ messages[99].content.x }}", "{{ nothing() }}"]
)
def test_a_template_that_always_fails_renders_no_shape(source):
    sweep = sweep_template(source, name="bad", special_tokens={})
    assert len(sweep.shapes) == len(SHAPES)
    assert not sweep.renders


def test_the_shapes_have_names_of_their_own():
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert all(shape.about for shape in SHAPES)
