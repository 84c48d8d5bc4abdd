"""What was generated, from what the log has of it."""

import pytest

from tests.support.logged import PLAIN, assistant, call, request, template, turn, user
from warmturn.check.prompt import PromptRenderer, prompt_of
from warmturn.check.reply import generated_by, plainly_appended, split_reasoning

Q1, Q2 = user("one?"), user("two?")
EMPTY_BLOCK = """{% for m in messages %}<|{{ m.role }}|>
{%- if m.role == 'assistant' and loop.last %}<think>
{{ m.reasoning_content or '' }}
</think>

{% endif %}{{ m.content }}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
DROPS = """{% set marks = '<think></think>' %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{{ opening or '' }}{% endif %}"""
TRIMS = """{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def generated(logged, source=PLAIN):
    renderer = PromptRenderer(template(source))
    prompt = prompt_of(logged)
    return generated_by(logged, prompt, renderer.text(prompt), renderer)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("plain<|im_end|>", None, "plain"),
        ("<think>\nhm\n</think>\n\nplain</s>", "\nhm\n", "\n\nplain"),
        ("hm</think>plain", "hm", "plain"),
        ("<think>\n\n</think>\n\nplain", None, "\n\nplain"),
        ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>plain<|return|>", "hm", "plain"),
        ("<|channel|>final<|message|>plain<|return|>", None, "plain"),
        ("code\n\n<|end|>", None, "code\n\n"),
        ("so<tool_call>{}</tool_call><|im_end|>", None, "so"),
        ("[THINK]hm[/THINK]plain", "hm", "plain"),
    ],
)  # fmt: skip
def test_raw_text_is_split_into_reasoning_and_content(text, reasoning, content):
    found = generated(request(Q1, output=text))
    assert (found.text, found.reasoning, found.content) == (text, reasoning, content)
    assert found.evidence == "text"


def test_text_without_markers_has_no_reasoning():
    assert split_reasoning("a < b") == (None, "a < b")


def test_a_message_is_written_as_the_template_writes_a_last_message():
    found = generated(request(Q1, reply=assistant("first")))
    assert (found.text, found.evidence) == ("first<|end|>", "message")


def test_white_space_that_the_template_trims_was_generated_all_the_same():
    earlier, later = request(Q1, reply=assistant("a\n\n")), request(Q1, assistant("a\n\n"), Q2)
    assert generated(earlier, TRIMS).text == "a\n\n<|end|>"
    assert turn(earlier, later, TRIMS).cause == "template.content_trimmed"


def test_an_empty_block_around_nothing_was_not_generated():
    earlier = request(Q1, reply=assistant("first", tool_calls=None))
    assert generated(earlier, EMPTY_BLOCK).text == "first<|end|>"
    with_thought = request(Q1, reply=assistant("first", reasoning_content="hm"))
    assert "hm" in generated(with_thought, EMPTY_BLOCK).text


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({}, "<think>\nhm\n</think>\n\nfirst<|end|>"),
        ({"opening": "<think>"}, "hm\n</think>\n\nfirst"),
    ],
)
def test_reasoning_that_the_template_never_prints_stands_where_the_model_wrote_it(kwargs, text):
    earlier = request(Q1, reply=assistant("first", reasoning_content="hm"), template_kwargs=kwargs)
    assert generated(earlier, DROPS).text == text


def test_a_template_that_knows_nothing_of_reasoning_is_not_blamed_for_it():
    earlier = request(Q1, reply=assistant("first", reasoning="hm"))
    assert generated(earlier).text == "first<|end|>"
    assert turn(earlier, request(Q1, assistant("first"), Q2)).verdict == "append-only"


def test_nothing_is_known_without_a_reply():
    found = generated(request(Q1))
    assert (found.text, found.evidence, found.content) == ("", "none", None)


def plain(reply, echo, later_text="<|user|>one?<|end|><|assistant|>first<|end|>..."):
    earlier = request(Q1, reply=reply)
    return plainly_appended(
        earlier, request(Q1, echo, Q2), "<|user|>one?<|end|><|assistant|>", later_text
    )


def test_a_reply_that_came_back_untouched_is_read_off_the_next_prompt():
    found = plain(assistant("first"), assistant("first"))
    assert (found.text, found.content) == ("first<|end|>", "first")
    same = generated(request(Q1, reply=assistant("first")))
    assert (found.text, found.content, found.evidence) == (same.text, same.content, same.evidence)


@pytest.mark.parametrize(
    ("reply", "echo"),
    [
        (assistant("first"), assistant("other")),
        (assistant("first ", x=1), assistant("first")),
        (assistant("first", reasoning="hm"), assistant("first")),
        (assistant("first", tool_calls=[call("f", "{}")]), assistant("first")),
        (assistant(""), assistant("")),
        (assistant("nowhere"), assistant("nowhere")),
    ],
)
def test_whatever_needs_a_look_is_not_read_off(reply, echo):
    assert plain(reply, echo) is None


def test_a_prompt_that_was_rewritten_is_not_read_off():
    assert plain(assistant("first"), assistant("first"), "<|user|>two") is None
