"""The whole way: from a log to a report."""

import json

import pytest

from tests.support.logged import (
    PLAIN,
    assistant,
    report,
    request,
    system,
    template,
    tool,
    turn,
    user,
)
from warmturn.check import Checker, Settings, check_conversations
from warmturn.errors import InvalidInput, TemplateError

HEAD = system("You help in a small shop. Be brief and kind to all.")
Q1, A1, Q2 = user("one?"), assistant("first"), user("two?")
STRICT = "{% if messages[0].role != 'user' %}{{ raise_exception('no system') }}{% endif %}" + PLAIN


def first(*messages, **fields):
    return request(*messages, **{"output": "first<|end|>", **fields})


def test_threads_of_one_conversation_id_are_numbered():
    found = report(
        first(HEAD, Q1, conversation_id="c"),
        request(system("Write a title."), user("one?"), conversation_id="c"),
        request(HEAD, Q1, A1, Q2, conversation_id="c"),
        request(HEAD, user("other")),
    )
    assert [c.conversation_id for c in found.conversations] == ["c", "c#2", "thread-3"]
    assert [len(c.turns) for c in found.conversations] == [2, 1, 1]


def test_requests_without_an_id_are_named_by_their_place():
    found = report(first(HEAD, Q1, source="log.jsonl", line=3), request(HEAD, Q1, A1, Q2, line=4))
    assert [t.parent_id for t in found.turns()] == [None, "log.jsonl:3"]
    assert [t.number for t in found.turns()] == [1, 2]


def test_a_prompt_the_template_refuses_is_noted_and_the_log_goes_on():
    found = check_conversations(
        [first(Q1, name="a"), request(HEAD, user("x"), name="b"), request(Q1, A1, Q2, name="c")],
        template=template(STRICT),
    )
    notes = {t.request_id: t.notes for t in found.turns()}
    assert "no system" in notes["b"][0]
    assert notes["a"] == notes["c"] == ()
    assert found.verdict == "append-only"


def test_a_pair_the_template_refuses_is_the_callers_to_handle():
    with pytest.raises(TemplateError, match="no system"):
        turn(first(HEAD, Q1), request(HEAD, Q1, A1, Q2), STRICT)


def test_an_experiment_the_template_refuses_proves_nothing_and_stops_nothing():
    picky = (
        "{% if not tools %}{{ raise_exception('tools') }}{% endif %}{{ messages | length }}" + PLAIN
    )
    tools = [tool("a")]
    found = turn(first(Q1, tools=tools), request(Q1, A1, Q2, tools=tools), picky)
    assert found.cause == "unknown"


def test_without_a_template_messages_alone_are_compared():
    log = [
        first(HEAD, Q1, A1, user("x")),
        request(HEAD, user("one, edited?"), A1, user("x"), A1, Q2),
    ]
    found = check_conversations(log, template=None)
    assert found.cause == "client.message_edited"
    same = check_conversations([first(HEAD, Q1), request(HEAD, Q1, A1, Q2)], template=None)
    assert same.verdict == "append-only"


def test_a_log_of_messages_only_is_not_rendered_with_the_template():
    log = [
        request(HEAD, Q1, level="messages"),
        request(HEAD, Q1, A1, Q2, level="messages"),
    ]
    assert check_conversations(log, template=template(STRICT)).verdict == "append-only"


def test_reserved_arguments_of_a_template_are_not_passed_on():
    kwargs = {"messages": [], "add_generation_prompt": False}
    found = turn(first(Q1, template_kwargs=kwargs), request(Q1, A1, Q2, template_kwargs=kwargs))
    assert found.verdict == "append-only"


def test_arguments_of_the_checker_give_way_to_those_of_a_request():
    source = "{{ mode }}" + PLAIN
    log = [first(Q1, template_kwargs={"mode": "a"}), request(Q1, A1, Q2)]
    found = report(*log, source=source, template_kwargs={"mode": "b"})
    assert found.cause == "client.template_kwargs_changed"
    given = [first(Q1), request(Q1, A1, Q2)]
    assert report(*given, source=source, template_kwargs={"mode": "a"}).cause == "none"


def test_servers_see_no_nulls_and_one_text_for_parts():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "more"}]
    flat = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    found = turn(
        first(user(parts), {"role": "assistant", "content": None}, user("x")),
        request(user("one\nmore"), assistant(""), user("x"), A1, Q2),
        flat,
        preparation="as_served",
    )
    assert found.verdict == "append-only"


def test_a_report_can_be_asked_for_while_the_log_is_read():
    checker = Checker(template=template())
    checker.add(first(HEAD, Q1))
    assert checker.report().num_requests == 1
    broken = checker.add(request(HEAD, user("one!?"), A1, Q2))
    assert broken.verdict == "break"
    assert checker.report().num_breaks == 1


def test_a_report_is_json_all_through():
    found = report(
        first(HEAD, Q1, tools=[tool("a"), tool("b")]),
        request(HEAD, Q1, A1, Q2, tools=[tool("b"), tool("a")]),
    )
    data = json.loads(json.dumps(found.as_dict()))
    (_, last) = data["conversations"][0]["turns"]
    assert last["findings"][0]["facts"] == {"tools_same_set": True}
    assert data["num_failures"] == 1


def test_a_clean_log_is_clean():
    assert report(first(HEAD, Q1), request(HEAD, Q1, A1, Q2)).is_clean
    changed = system(HEAD["content"].replace("small", "large"))
    assert not report(first(HEAD, Q1), request(changed, Q1, A1, Q2)).is_clean


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_size": 0},
        {"hybrid_block_tokens": -1},
        {"most_open_requests": 1},
        {"fail_under": 1.5},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Settings(**wrong)


def test_messages_of_any_shape_do_not_stop_the_checker():
    odd = [
        {"role": "user", "content": [{"type": "image"}, "text", 7]},
        {"role": "assistant", "content": 3, "tool_calls": [None, {"function": 1}]},
        {"role": None},
        {},
    ]
    for one in odd:
        for other in odd:
            report(request(one), request(one, other), preparation="as_served")
            report(request(HEAD, one, Q1), request(HEAD, other, Q1, A1, one))
