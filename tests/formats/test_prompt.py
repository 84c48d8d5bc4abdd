import pytest

from warmturn.errors import InvalidRequest
from warmturn.formats.prompt import chat_prompt

USER = {"role": "user", "content": "q"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def refused(body: dict) -> InvalidRequest:
    """Return the refusal of a chat body."""
    with pytest.raises(InvalidRequest) as caught:
        chat_prompt(body)
    return caught.value


def test_messages_are_passed_on_as_sent():
    messages = [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": [{"type": "text", "text": "d", "cache": 1}]},
        USER | {"name": "ann", "extra": {"kept": True}},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning": "r"},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "assistant", "refusal": "no"},
    ]
    assert chat_prompt({"messages": messages}).messages == messages


def test_arguments_of_a_call_may_be_an_object():
    call = CALL | {"function": {"name": "look", "arguments": {"at": 1}}}
    chat_prompt({"messages": [{"role": "assistant", "tool_calls": [call]}]})


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"content": "q"}, "messages[1].role"),
        ({"role": "bot", "content": "q"}, "messages[1].role"),
        ({"role": 3, "content": "q"}, "messages[1].role"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "tool", "content": None}, "messages[1].content"),
        ({"role": "user", "content": 3}, "messages[1].content"),
        ({"role": "user", "content": ["q"]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"text": "q"}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[1].content"),
        (USER | {"name": 3}, "messages[1].name"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[1].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": "x"}, "messages[1].tool_calls"),
        ("hi", "messages[1]"),
    ],
)
def test_a_message_of_another_shape_is_refused_by_its_path(message, param):
    assert refused({"messages": [USER, message]}).param == param


def test_an_unknown_part_is_named_with_what_works_instead():
    error = refused({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})
    assert "image_url" in str(error)
    assert '{"type": "text"' in str(error)


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": "hi"}])
def test_there_must_be_messages(body):
    assert refused(body).param == "messages"


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{"type": "retrieval", "function": {"name": "x"}}], "tools[0].type"),
        ([{"type": "function"}], "tools[0].function"),
        ([{"type": "function", "function": {"name": 3}}], "tools[0].function.name"),
        ({}, "tools"),
    ],
)
def test_only_function_tools_are_known(tools, param):
    assert refused({"messages": [USER], "tools": tools}).param == param


@pytest.mark.parametrize("field", ["tools", "chat_template_kwargs", "messages"])
def test_what_the_template_walks_through_is_not_endlessly_deep(field):
    deep: dict = {}
    for _ in range(40):
        deep = {"properties": deep}
    values = {
        "tools": [{"type": "function", "function": {"name": "x", "parameters": deep}}],
        "chat_template_kwargs": deep,
        "messages": [USER | {"extra": deep}],
    }
    assert refused({"messages": [USER], field: values[field]}).param == field


def test_reasoning_effort_is_one_of_the_template_s_variables():
    prompt = chat_prompt({"messages": [USER], "reasoning_effort": "low"})
    assert prompt.template_kwargs == {"reasoning_effort": "low"}
    own = {"chat_template_kwargs": {"reasoning_effort": "own"}}
    prompt = chat_prompt({"messages": [USER], "reasoning_effort": "low"} | own)
    assert prompt.template_kwargs == {"reasoning_effort": "own"}
