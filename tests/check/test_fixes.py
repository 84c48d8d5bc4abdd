"""Fixes are rendered: each one here cures its pair, and says what it costs."""

import pytest

from tests.support.logged import assistant, call, report, request, system, tool, turn, user
from warmturn.check import Settings

END = "<|end|>"
Q1, A1, Q2 = user("one?"), assistant("first"), user("two?")
KEEPS_IF_TOLD = """\
{%- set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}<|{{ m.role }}|>
{%- if m.role == 'assistant' and m.reasoning_content and (loop.index0 > ns.last or preserve_thinking) %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""


def first(*messages, **fields):
    return request(*messages, **{"output": f"first{END}", **fields})


def changes(found):
    assert all(fix.is_proven for fix in found.fixes)
    assert all(fix.share_before < fix.share_after for fix in found.fixes if fix.window is None)
    return [fix.change for fix in found.fixes]


def test_a_clock_is_rounded_to_the_day_or_moved_to_the_end():
    old, new = (system(f"It is 2026-11-29 10:0{n}.\nBe brief, be kind.") for n in (3, 4))
    found = turn(first(old, Q1), request(new, Q1, A1, Q2))
    rounded, moved = changes(found)
    assert "day" in rounded
    assert "end of the newest user message" in moved
    assert [fix.share_after for fix in found.fixes] == [1.0, 1.0]


def test_a_clock_without_a_date_can_only_be_moved():
    old, new = (system(f"It is 10:0{n}.\nBe brief.") for n in (3, 4))
    assert len(changes(turn(first(old, Q1), request(new, Q1, A1, Q2)))) == 1


@pytest.mark.parametrize(
    "text", ["Request-ID: 8d3f1c{n}2\nBe brief.", "Be brief.\nThe user is called {n}x."]
)
def test_what_changes_is_moved_out_of_the_system_text(text):
    old, new = (system(text.format(n=n)) for n in "ab")
    assert changes(turn(first(old, Q1), request(new, Q1, A1, Q2)))[0].startswith("move ")


def test_a_line_that_a_known_program_writes_comes_with_its_switch():
    old, new = (system(f"x-anthropic-billing-header: cch=0c1d{n};\nBe brief.") for n in "23")
    (change,) = changes(turn(first(old, Q1), request(new, Q1, A1, Q2)))
    assert change.endswith("CLAUDE_CODE_ATTRIBUTION_HEADER=0")


def test_tools_are_sorted_and_keys_are_sorted():
    tools = [tool("b", type="object", x=1), tool("a")]
    reordered = turn(first(Q1, tools=tools), request(Q1, A1, Q2, tools=tools[::-1]))
    assert changes(reordered) == ["sort the tools by name"]
    keys = [tool("b", x=1, type="object"), tool("a")]
    rewritten = turn(first(Q1, tools=tools), request(Q1, A1, Q2, tools=keys))
    assert changes(rewritten) == ["write tool schemas with sorted keys"]


def test_tools_that_come_and_go_are_sent_from_the_first_turn_on():
    found = turn(first(Q1, tools=[tool("a")]), request(Q1, A1, Q2, tools=[tool("a"), tool("b")]))
    assert len(changes(found)) == 1


def test_arguments_and_answers_are_sent_back_as_they_were():
    calls = [assistant("", tool_calls=[call("f", t)]) for t in ('{"a":1,"b":2}', '{"b":2,"a":1}')]
    found = turn(first(Q1, calls[0], user("go")), request(Q1, calls[1], user("go"), A1, Q2))
    assert changes(found) == ["send arguments back as the very string the model wrote"]
    trimmed = turn(request(Q1, output=f"first\n\n{END}"), request(Q1, A1, Q2))
    assert changes(trimmed) == ["store and send back the answer exactly as it was generated"]


def test_a_known_switch_of_the_template_is_tried_and_its_price_told():
    thoughtful = assistant("first", reasoning_content="a long thought")
    found = turn(
        request(Q1, output=f"<think>a long thought</think>first{END}"),
        request(Q1, thoughtful, Q2),
        KEEPS_IF_TOLD,
        settings=Settings(max_model_tokens=200),
    )
    assert found.cause == "template.reasoning_stripped_on_new_user_turn"
    assert changes(found) == ["set preserve_thinking=True in chat_template_kwargs"]
    fix = found.fixes[0]
    extra_chars = len("<think>a long thought</think>")
    assert abs(fix.extra_context_tokens - extra_chars / 4) <= 1
    assert 1 < fix.full_context_turn < 20


def test_a_template_without_a_switch_has_no_fix_that_is_proven():
    found = turn(
        request(Q1, output=f"<think>hm</think>first{END}"),
        request(Q1, assistant("first", reasoning_content="hm"), Q2),
        KEEPS_IF_TOLD.replace(" or preserve_thinking", ""),
    )
    assert found.cause == "template.reasoning_stripped_on_new_user_turn"
    assert found.fixes == ()


def test_nothing_is_proven_where_that_is_not_wanted():
    old, new = system("It is 10:03."), system("It is 10:04.")
    settings = Settings(proves_fixes=False)
    assert turn(first(old, Q1), request(new, Q1, A1, Q2), settings=settings).fixes == ()


def test_the_report_averages_a_cause_over_its_turns():
    log = [
        request(system(f"It is 10:0{n}.\nBe brief."), *history, output=f"first{END}", name=str(n))
        for n, history in enumerate([[Q1], [Q1, A1, Q2], [Q1, A1, Q2, A1, user("three?")]])
    ]
    found = report(*log)
    assert found.num_breaks == 2
    (fix,) = found.fixes
    assert (fix.cause, fix.share_after, fix.is_proven) == ("client.timestamp_in_system", 1.0, True)
