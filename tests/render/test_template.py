"""One template: what it renders, what it may not touch, and how it fails."""

import copy
from datetime import UTC, datetime

import pytest

from warmturn.errors import TemplateError
from warmturn.render import ChatTemplate

NOW = datetime(2026, 11, 29, 12, 34, 56, tzinfo=UTC)
HI = [{"role": "user", "content": "Hi"}]
CHATML = (
    "{% for message in messages %}\n"
    "<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def render(source, messages=HI, **options):
    return ChatTemplate(source, special_tokens={"bos_token": "<s>"}).render(
        messages, now=NOW, **options
    )


def test_a_conversation_becomes_a_prompt():
    assert render(CHATML) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert render(CHATML, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_special_tokens_are_variables_that_arguments_override():
    assert render("{{ bos_token }}") == "<s>"
    assert render("{{ bos_token }}", bos_token="<b>") == "<b>"
    assert render("{{ eos_token is defined }}") == "False"


def test_the_time_is_the_callers():
    assert render("{{ strftime_now('%d %b %Y') }}") == "29 Nov 2026"


def test_tools_and_documents_and_other_variables_reach_the_template():
    source = "{{ tools[0].name }} {{ documents | length }} {{ enable_thinking }}"
    text = render(source, tools=[{"name": "f"}], documents=[{}], enable_thinking=False)
    assert text == "f 1 False"
    assert render("{{ tools }} {{ documents }}") == "None None"


def test_reasoning_stands_under_every_name_templates_read():
    message = {"role": "assistant", "content": "4", "reasoning": "2+2"}
    source = "{{ messages[0].reasoning_content }} {{ messages[0].thinking }}"
    assert render(source, [message]) == "2+2 2+2"


@pytest.mark.parametrize(
    "call",
    [
        "messages.append(1)",
        "messages.pop()",
        "messages[0].update({'role': 'x'})",
        "messages[0].clear()",
        "messages[0].__setitem__('role', 'x')",
        "tools[0].parts.extend([2])",
        "extra.list.append(1)",
    ],
)
def test_a_template_cannot_change_the_callers_data(call):
    data = {
        "messages": copy.deepcopy(HI),
        "tools": [{"parts": [1]}],
        "extra": {"list": []},
    }
    before = copy.deepcopy(data)
    with pytest.raises(TemplateError, match="SecurityError"):
        render("{{ " + call + " }}", **data)
    assert data == before


def test_a_template_sees_copies_only():
    message = {"role": "user", "content": ["a"]}
    chat = ChatTemplate("{{ messages[0].content[0] }}", special_tokens={})
    chat.render([message], now=NOW, continue_final_message=False)
    assert message == {"role": "user", "content": ["a"]}


def test_objects_that_are_not_json_never_reach_a_template():
    with pytest.raises(TemplateError, match="a template was given a datetime; give it JSON"):
        render("x", extra=NOW)


def test_an_exception_the_template_raises_is_its_message():
    with pytest.raises(TemplateError, match=r"refused the messages: roles must alternate$") as e:
        render("{{ raise_exception('roles must alternate') }}")
    assert e.value.param == "messages"


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("{{ messages[0].tool.name }}", "UndefinedError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "OverflowError"),
        ("{{ 'a' * 10 ** 9 }}", "SecurityError: a repeat of 1000000000 items"),
        ("{{ 10 ** 9 * [0] }}", "SecurityError: a repeat of"),
        ("{{ 10 ** 10000000 }}", "SecurityError: a power of"),
        ("{% include 'other' %}", "TypeError"),
    ],
)
def test_whatever_goes_wrong_in_a_template_is_a_template_error(source, named):
    with pytest.raises(TemplateError, match=f"failed on the messages: .*{named}"):
        render(source)


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ a", "{% nothing %}", "{{ a | no_such_filter }}", "{% endif %}"]
)
def test_a_template_that_is_not_jinja_is_refused_with_the_line(source):
    with pytest.raises(TemplateError, match=r"not valid Jinja: line 2") as error:
        ChatTemplate("\n" + source, special_tokens={})
    assert error.value.param == "chat_template"


def test_a_template_nested_too_deep_is_refused():
    with pytest.raises(TemplateError, match=r"cannot be compiled|not valid Jinja"):
        ChatTemplate("{% if a %}" * 3000 + "{% endif %}" * 3000, special_tokens={})


def test_messages_nested_too_deep_are_refused():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(TemplateError, match="RecursionError"):
        render("x", [{"role": "user", "content": nested}])


def test_the_length_of_the_text_is_bounded(monkeypatch):
    monkeypatch.setattr("warmturn.render.bounded_text.MAX_RENDERED_CHARS", 10_000)
    loop = "{% for i in range(1000) %}{{ messages[0].content }}{% endfor %}"
    assert len(render(loop, [{"content": "x" * 10}])) == 10_000
    with pytest.raises(TemplateError, match="over 10000 characters"):
        render(loop, [{"content": "x" * 11}])


def test_a_final_message_is_continued_where_it_ends():
    chat = [*HI, {"role": "assistant", "content": "It is "}]
    text = render(CHATML, chat, add_generation_prompt=False, continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\nIt is ")


def test_a_template_that_trims_loses_the_space_of_a_continued_message():
    source = "{{ messages[-1].content | trim }}<end>"
    chat = [{"role": "assistant", "content": "It is "}]
    assert render(source, chat, continue_final_message=True) == "It is"


def test_the_last_text_part_is_continued():
    source = "{% for part in messages[0].content %}{{ part.text }};{% endfor %}"
    chat = [{"role": "assistant", "content": [{"text": "a"}, {"text": "b"}]}]
    assert render(source, chat, continue_final_message=True) == "a;b"
    assert chat[0]["content"][1] == {"text": "b"}


@pytest.mark.parametrize(
    ("source", "chat", "reason"),
    [
        (CHATML, [], "has no content"),
        (CHATML, [{"role": "assistant"}], "has no content"),
        ("{{ messages[0].role }}", HI, "has no content that the template reads"),
        (CHATML, [{"role": "assistant", "content": [{"type": "image"}]}], "no part"),
        ("no content here", HI, "leaves out"),
        ("{{ messages[0].content | upper }}", HI, "leaves out"),
    ],
)
def test_what_cannot_be_continued_is_refused(source, chat, reason):
    with pytest.raises(TemplateError, match=reason) as error:
        render(source, chat, continue_final_message=True)
    assert error.value.param == "continue_final_message"


def test_a_template_is_compiled_once(monkeypatch):
    first = ChatTemplate("once {{ bos_token }}", special_tokens={})
    second = ChatTemplate("once {{ bos_token }}", special_tokens={"bos_token": "<s>"})
    assert first._compiled is second._compiled
    assert first.render(HI, now=NOW) == "once "
    assert second.render(HI, now=NOW) == "once <s>"
