"""Anthropic Messages in OpenAI form."""

import pytest

from tests.support.logs import DATA, read_data, read_records
from warmturn.formats.anthropic import openai_messages
from warmturn.formats.detect import detect_format
from warmturn.formats.record import LoggedRequest

CALL = {
    "id": "tu1",
    "type": "function",
    "function": {"name": "get", "arguments": '{"q": "ä", "n": 1}'},
}


def test_blocks_become_content_reasoning_and_tool_calls():
    source = str(DATA / "anthropic.jsonl")
    opening = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})
    function = {"name": "get", "description": "d", "parameters": {"z": 1, "a": 2}}
    answer = {"role": "assistant", "content": "Wait.\n", "tool_calls": [CALL]}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}}
    assert read_data("anthropic.jsonl") == [
        LoggedRequest(
            source=source,
            line=1,
            level="full",
            request_id="msg_1",
            model="c",
            messages=opening,
            tools=({"type": "function", "function": function},),
            reply={**answer, "reasoning": "Hm. "},
            finish_reason="tool_calls",
            prompt_tokens=17,
            cached_tokens=10,
            completion_tokens=7,
        ),
        LoggedRequest(
            source=source,
            line=2,
            level="full",
            model="c",
            messages=(
                *opening,
                answer,
                {"role": "tool", "tool_call_id": "tu1", "content": "42"},
                {"role": "user", "content": [{"type": "text", "text": "So?"}, image]},
            ),
        ),
    ]


def test_a_cache_mark_that_moves_changes_nothing():
    block = {"type": "text", "text": "x"}
    marked = {**block, "cache_control": {"type": "ephemeral"}}
    plain, same, text = (
        openai_messages([{"role": "user", "content": content}])
        for content in ([block], [marked], "x")
    )
    assert plain == same == text == ({"role": "user", "content": "x"},)


def test_results_and_text_keep_the_order_of_their_blocks():
    result = {"type": "tool_result", "tool_use_id": "t", "content": None}
    blocks = [{"type": "text", "text": "a"}, result, {"type": "text", "text": "b"}]
    assert openai_messages([{"role": "user", "content": blocks}]) == (
        {"role": "user", "content": "a"},
        {"role": "tool", "tool_call_id": "t", "content": None},
        {"role": "user", "content": "b"},
    )


def test_a_body_that_openai_writes_alike_is_left_to_openai():
    body = b'{"model":"c","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}'
    assert detect_format([body]) == "openai"
    assert detect_format([body[:-1] + b',"system":"s"}']) == "anthropic"


def test_a_tool_of_the_servers_own_stays_as_it_is():
    tool = {"type": "web_search_20250305", "name": "web_search"}
    (found,) = read_records(
        {"system": "s", "messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    )
    assert found.tools == (tool,)


@pytest.mark.parametrize(
    "content",
    [[{"type": "text"}], [{"type": "tool_result", "content": 7}], [7]],
)
def test_blocks_that_are_none_are_refused(content):
    body = {"system": "s", "messages": [{"role": "user", "content": content}]}
    (bad,) = read_records(body)
    assert bad.line == 1
