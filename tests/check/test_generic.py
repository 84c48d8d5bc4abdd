from datetime import UTC, datetime

from tests.support.logged import assistant, call, request, tool, user
from warmturn.check import check_turn
from warmturn.check.generic import generic_template

NOW = datetime(2026, 3, 2, tzinfo=UTC)


def test_it_prints_tools_roles_content_and_calls():
    text = generic_template().render(
        [user("Hi"), assistant("", tool_calls=[call("get", {"a": 1})])],
        now=NOW,
        tools=[tool("get")],
    )
    assert text.startswith("<|im_start|>tools\n{")
    assert "<|im_start|>user\nHi<|im_end|>\n" in text
    assert '<tool_call>{"name": "get", "arguments": {"a": 1}}</tool_call><|im_end|>' in text
    assert text.endswith("<|im_start|>assistant\n")


def test_it_prints_parts_images_too():
    parts = [{"type": "text", "text": "See "}, {"type": "image_url", "image_url": {"url": "x:y"}}]
    text = generic_template().render([{"role": "user", "content": parts}], now=NOW)
    assert 'See {"type": "image_url"' in text


def test_reasoning_and_call_ids_which_only_some_templates_print_are_never_blamed():
    reply = assistant("", reasoning="Hm.", tool_calls=[call("get", '{"a": 1}', "id-1")])
    echo = assistant("", tool_calls=[call("get", '{"a": 1}', "id-2")])
    earlier = request(user("Hi"), reply=reply)
    later = request(user("Hi"), echo, user("More"))
    assert check_turn(earlier, later, template=generic_template()).verdict == "append-only"
