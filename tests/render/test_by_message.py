"""Putting a prompt together from known pieces gives what rendering it as a whole gives."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planted_log import TEMPLATE
from tests.support.logged import PLAIN
from warmturn.check.generic import GENERIC_SOURCE
from warmturn.errors import TemplateError
from warmturn.render import ChatTemplate
from warmturn.render.by_message import _MARK, by_message
from warmturn.render.environment import chat_environment
from warmturn.render.messages import plain_message, plain_tool

NOW = datetime(2026, 3, 2, 10, 5, tzinfo=UTC)
LOOP = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
TIMED = "{{ strftime_now('%H') }}{% for m in messages %}{{ m.content }}{{ strftime_now('%M') }}{% endfor %}"
SET = (
    "{% set n = tools | length if tools else 0 %}{% for m in messages %}{{ n }}{{ m.content }}"
    "{% set n = 7 %}{{ n }}{% endfor %}{{ n }}{% if add_generation_prompt %}>{% endif %}"
)
MACRO = "{% macro line(m) %}{{ m.role }}:{{ mode }}{% endmacro %}{% for m in messages %}{{ line(m) }}{% endfor %}"
BY_MESSAGE = [LOOP, PLAIN, TEMPLATE, GENERIC_SOURCE, TIMED, SET, MACRO]


def test_simple_templates_write_each_message_by_itself():
    for source in BY_MESSAGE:
        assert by_message(source, chat_environment()) is not None, source


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content }}{% if loop.last %}.{% endif %}{% endfor %}",
        "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{{ messages[0].role }}{% endfor %}",
        "{% for m in messages[1:] %}{{ m.content }}{% endfor %}",
        "{% for m in messages | reverse %}{{ m.content }}{% endfor %}",
        "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}{% else %}none{% endfor %}",
        "{% for m in messages recursive %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% if m.role == 'x' %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endfor %}",
        "{% set c = cycler('a', 'b') %}{% for m in messages %}{{ c.next() }}{% endfor %}",
        "{% set j = joiner() %}{% for m in messages %}{{ j() }}{{ m.role }}{% endfor %}",
        "{% if tools %}{% for m in messages %}{{ m.role }}{% endfor %}{% endif %}",
        "{% for t in tools %}{{ t.name }}{% endfor %}",
        "no messages at all",
    ],
)
def test_where_one_message_may_have_a_say_in_anothers_text_they_do_not(source):
    assert by_message(source, chat_environment()) is None


words = st.sampled_from(["", "a", "b\n", " <|end|>", "{{ x }}", _MARK, "ü中"])
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant"]), "content": words},
    optional={"reasoning_content": words},
)
tool = st.fixed_dictionaries({"name": words, "strict": st.sampled_from([1, True, 1.0])})
options = st.fixed_dictionaries(
    {
        "add_generation_prompt": st.booleans(),
        "mode": st.sampled_from([1, True, "1"]),
        "now": st.sampled_from([NOW, NOW.replace(hour=11), NOW.replace(minute=6)]),
    },
    optional={"tools": st.lists(tool, max_size=2)},
)


@pytest.mark.parametrize("source", BY_MESSAGE)
@settings(deadline=None)
@given(turns=st.lists(st.tuples(st.lists(message, max_size=4), options), min_size=1, max_size=4))
def test_the_text_is_that_of_the_whole(source, turns):
    """One template writes all turns, so that later ones are put together from earlier ones."""
    pieces, whole = (ChatTemplate(source, special_tokens={}) for _ in range(2))
    plain, ready = [], []
    for new, variables in turns:
        plain += new
        ready += [plain_message(m) if i % 3 < 2 else m for i, m in enumerate(new)]
        given_tools = {"now": NOW} | variables
        ready_tools = given_tools | {"tools": list(map(plain_tool, variables.get("tools", [])))}
        for part in (slice(None), slice(None, None, -1), slice(1, None)):
            expected = whole.render(plain[part], **given_tools)
            assert pieces.render(ready[part], **ready_tools) == expected


def test_a_message_is_written_once():
    source = (
        "{% for m in messages %}{{ m.content }}{{ raise_exception('twice') if m.bad }}{% endfor %}"
    )
    template = ChatTemplate(source, special_tokens={})
    good = plain_message({"role": "user", "content": "good"})
    assert template.render([good], now=NOW) == "good"
    good["bad"] = True  # nobody does this: it shows that nothing is written again
    assert template.render([good, good], now=NOW) == "goodgood"
    with pytest.raises(TemplateError, match="twice"):
        template.render([plain_message(good)], now=NOW)


def test_texts_kept_of_one_message_are_bounded():
    template = ChatTemplate(TIMED, special_tokens={})
    message = plain_message({"role": "user", "content": "x"})
    for number in range(30):
        template.render([message], now=NOW.replace(minute=number))
    assert len(message.written) <= 8


def test_a_text_that_holds_the_mark_is_rendered_as_a_whole():
    template = ChatTemplate(LOOP, special_tokens={})
    odd = plain_message({"role": "user", "content": f"a{_MARK}b"})
    assert template.render([odd], now=NOW) == f"<user>a{_MARK}b"


def test_what_is_dumped_again_is_dumped_once_and_equal():
    template = ChatTemplate(
        "{{ tools[0] | tojson }}{{ tools[0] | tojson(indent=1) }}{{ tools[0].a | tojson }}",
        special_tokens={},
    )
    tools = [plain_tool({"b": 1, "a": {"z": "ü", "y": [True]}})]
    expected = template.render([], now=NOW, tools=[json.loads(json.dumps(tools[0]))])
    assert [template.render([], now=NOW, tools=tools) for _ in range(2)] == [expected] * 2


def test_a_template_cannot_see_or_change_what_is_kept():
    template = ChatTemplate("{{ messages[0].dumped }}{{ messages[0].written }}", special_tokens={})
    ready = plain_message({"role": "user"})
    assert template.render([ready], now=NOW) == ""
    changing = ChatTemplate("{% set _ = messages[0].update({'a': 1}) %}", special_tokens={})
    with pytest.raises(TemplateError):
        changing.render([ready], now=NOW)
    assert ready == {"role": "user"}


def test_an_error_speaks_of_dictionaries():
    template = ChatTemplate("{{ messages[0].content.text.x }}", special_tokens={})
    ready = plain_message({"role": "user", "content": {}})
    with pytest.raises(TemplateError, match="'dict object' has no attribute 'text'"):
        template.render([ready], now=NOW)
