"""OpenAI messages as templates get them."""

import copy
from types import MappingProxyType

import pytest

from warmturn.errors import InvalidRequest, TemplateError
from warmturn.render.messages import alias_reasoning, normalise, plain_copy


def one(message, content_format="string"):
    (result,) = normalise([message], content_format=content_format)
    return result


def call(arguments, **extra):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        ],
        **extra,
    }


def arguments_of(message):
    return message["tool_calls"][0]["function"]["arguments"]


def test_text_stays_text_or_becomes_one_part():
    message = {"role": "user", "content": "Hi"}
    assert one(message) == message
    assert one(message, "openai") == {"role": "user", "content": [{"type": "text", "text": "Hi"}]}


def test_parts_are_joined_by_line_feeds_or_kept():
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"]
    assert one({"role": "user", "content": parts})["content"] == "a\nb\nc"
    assert one({"role": "user", "content": parts}, "openai")["content"] == [
        {"type": "text", "text": text} for text in "abc"
    ]


def test_refusals_and_thoughts_among_the_parts_are_text():
    parts = [{"type": "refusal", "refusal": "No."}, {"type": "thinking", "thinking": "Hm."}]
    assert one({"role": "assistant", "content": parts})["content"] == "No.\nHm."


def test_a_part_without_text_is_skipped():
    assert one({"role": "user", "content": [{"type": "text"}, "a"]})["content"] == "a"


@pytest.mark.parametrize("content", [None, []])
def test_absent_content_is_empty(content):
    assert one({"role": "assistant", "content": content})["content"] == ""
    assert one({"role": "assistant", "content": content}, "openai")["content"] == []
    assert one({"role": "assistant"})["content"] == ""


def test_a_tool_result_is_one_string_for_every_template():
    result = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "21"}]}
    assert one(result, "openai") == {"role": "tool", "tool_call_id": "c1", "content": "21"}


@pytest.mark.parametrize(
    ("given", "rendered"),
    [
        ('{"city": "Paris"}', {"city": "Paris"}),
        ({"city": "Paris"}, {"city": "Paris"}),
        ('{"city": "Par', {}),
        ("[1]", {}),
        ("", {}),
        (None, {}),
        ("[" * 100_000, {}),
    ],
)
def test_arguments_of_calls_become_objects(given, rendered):
    assert arguments_of(one(call(given))) == rendered


def test_an_empty_list_of_calls_is_no_list():
    assert "tool_calls" not in one({"role": "assistant", "content": "a", "tool_calls": []})


def test_only_an_assistant_calls_tools():
    assert "tool_calls" not in one(call("{}") | {"role": "user"})


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_is_taken_under_both_names(key):
    result = one({"role": "assistant", "content": "4", key: "2+2"})
    assert (result["reasoning"], result["reasoning_content"]) == ("2+2", "2+2")


def test_reasoning_is_the_assistants_only():
    assert "reasoning" not in one({"role": "user", "content": "4", "reasoning": "2+2"})


def test_names_and_refusals_stay_and_absent_fields_go():
    message = {"role": "assistant", "content": "a", "name": "bot", "refusal": None, "audio": None}
    assert one(message) == {"role": "assistant", "content": "a", "name": "bot"}
    assert one(message | {"refusal": "No."})["refusal"] == "No."


def test_a_developer_may_bring_tools():
    tools = [{"type": "function"}]
    assert one({"role": "developer", "content": "a", "tools": tools})["tools"] == tools


def test_the_input_is_not_changed():
    messages = [call('{"a": 1}', reasoning="r"), {"role": "user", "content": ["a"]}]
    before = copy.deepcopy(messages)
    normalise(messages, content_format="openai")
    assert messages == before


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("Hi", "messages[1]"),
        ({"content": "Hi"}, "messages[1]"),
        ({"role": 3, "content": "Hi"}, "messages[1]"),
        ({"role": "user", "content": 3}, "messages[1].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[1].content[0]"),
        ({"role": "user", "content": ["a", {"text": "b"}]}, "messages[1].content[1]"),
        ({"role": "user", "content": [{"type": "text", "text": 3}]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": []}]}, "messages[1].content[0]"),
        ({"role": "assistant", "tool_calls": {}}, "messages[1].tool_calls"),
        ({"role": "assistant", "tool_calls": ["f"]}, "messages[1].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"function": "f"}]}, "messages[1].tool_calls[0]"),
    ],
)
def test_what_no_template_can_take_is_named(message, param):
    with pytest.raises(InvalidRequest) as error:
        normalise([{"role": "user", "content": "a"}, message], content_format="string")
    assert error.value.param == param


def test_aliases_are_set_once_and_keep_what_was_given():
    given = [{"role": "assistant", "thinking": "t", "reasoning": "r"}]
    assert alias_reasoning(given) == [
        {"role": "assistant", "thinking": "t", "reasoning": "r", "reasoning_content": "t"}
    ]
    assert alias_reasoning([{"role": "user"}]) == [{"role": "user"}]


def test_a_plain_copy_shares_nothing_that_can_change():
    data = {"a": [1, {"b": (2.5, None, True)}]}
    copied = plain_copy(MappingProxyType(data))
    assert copied == data
    copied["a"][1]["b"] = 0
    assert data == {"a": [1, {"b": (2.5, None, True)}]}


class _Text(str):
    __slots__ = ()


@pytest.mark.parametrize("value", [_Text("a"), object(), b"a", {1, 2}])
def test_only_json_data_is_copied(value):
    with pytest.raises(TemplateError, match="JSON data only"):
        plain_copy({"a": [value]})
