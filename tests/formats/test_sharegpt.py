"""ShareGPT conversations."""

import pytest

from tests.support.logs import DATA, read_data, read_records
from warmturn.formats.record import LoggedRequest


def talk(*turns, **more):
    return {"conversations": [{"from": who, "value": text} for who, text in turns], **more}


def test_each_assistant_turn_is_a_request_with_what_came_before():
    source = str(DATA / "sharegpt.json")
    tools = ({"type": "function", "function": {"name": "get", "parameters": {}}},)
    # Arguments are the very text of the log, blanks included.
    function = {"name": "get", "arguments": '{"b":1,  "a": [2]}'}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": function}],
    }
    asked = ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi "})
    one = {"source": source, "line": 1, "level": "full", "conversation_id": "conv1"}
    assert read_data("sharegpt.json") == [
        LoggedRequest(**one, request_id="conv1/2", messages=asked, tools=tools, reply=call),
        LoggedRequest(
            **one,
            request_id="conv1/4",
            messages=(*asked, call, {"role": "tool", "content": "{}"}),
            tools=tools,
            reply={"role": "assistant", "content": "Yo\n"},
        ),
        LoggedRequest(
            source=source,
            line=2,
            level="full",
            request_id=f"{source}:2/1",
            conversation_id=f"{source}:2",
            messages=({"role": "user", "content": "A"},),
            reply={"role": "assistant", "content": "B"},
        ),
    ]


def test_arguments_that_are_text_already_are_not_quoted_again():
    call = '[{"name": "f", "arguments": "{\\"a\\":1}"}]'
    (found,) = read_records(talk(("human", "x"), ("function_call", call)))
    assert found.reply["tool_calls"][0]["function"]["arguments"] == '{"a":1}'


def test_a_conversation_that_opens_with_the_assistant_has_no_prompt_for_it():
    (found,) = read_records(talk(("gpt", "Hello"), ("human", "x"), ("gpt", "y")))
    assert [message["content"] for message in found.messages] == ["Hello", "x"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (talk(("robot", "x")), "conversations[0] is from 'robot'; known: system, human"),
        (talk(("human", 7)), "conversations[0] has no text named value"),
        (talk(("human", "x"), ("function_call", "oops")), "conversations[1] is no function call"),
        (talk(("human", "x"), tools="oops"), "tools is no JSON"),
        ({"messages": []}, "this record has no list named conversations"),
    ],
)
def test_a_broken_conversation_is_named_and_the_next_is_read(record, reason):
    bad, good = read_records(record, talk(("human", "x"), ("gpt", "y")), format="sharegpt")
    assert bad.reason.startswith(reason)
    assert good.reply == {"role": "assistant", "content": "y"}
