"""Codex rollouts: a list of items."""

import pytest

from tests.support.logs import DATA, read_data, read_records
from warmturn.formats.record import LoggedRequest


def item(kind, **more):
    return {"type": "response_item", "payload": {"type": kind, **more}}


def user(text):
    return item("message", role="user", content=[{"type": "input_text", "text": text}])


def assistant(text):
    return item("message", role="assistant", content=[{"type": "output_text", "text": text}])


def test_runs_of_model_items_become_answers():
    source = str(DATA / "codex.jsonl")
    task = {"role": "user", "content": "List "}
    call = {"name": "shell", "arguments": '{"cmd" :["ls"]}'}
    answer = {
        "role": "assistant",
        "content": None,
        "reasoning": "Use ls.",
        "tool_calls": [{"id": "c1", "type": "function", "function": call}],
    }
    patch = {"name": "patch", "arguments": "*** a"}
    common = {
        "source": source,
        "level": "messages",
        "conversation_id": "sess-1",
        "model": "o4-mini",
    }
    assert read_data("codex.jsonl") == [
        LoggedRequest(
            **common,
            line=4,
            timestamp_s=1795946401.0,
            end_s=1795946403.0,
            messages=(task,),
            reply=answer,
            prompt_tokens=100,
            cached_tokens=64,
            completion_tokens=9,
        ),
        LoggedRequest(
            **common,
            line=8,
            timestamp_s=1795946404.0,
            end_s=1795946405.0,
            messages=(task, answer, {"role": "tool", "tool_call_id": "c1", "content": "a.txt\n"}),
            reply={"role": "assistant", "content": "One file."},
        ),
        LoggedRequest(
            **common,
            line=11,
            timestamp_s=1795946407.0,
            end_s=1795946408.0,
            messages=(
                {"role": "user", "content": "We listed."},
                {"role": "user", "content": "Go on"},
            ),
            reply={
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c2", "type": "function", "function": patch}],
            },
        ),
    ]


def test_a_replacement_history_takes_the_place_of_all_before():
    kept = [user("s"), assistant("t"), assistant("u"), user("v"), assistant("w")]
    replacement = [line["payload"] for line in kept]
    compacted = {"type": "compacted", "payload": {"replacement_history": replacement}}
    *_, found = read_records(user("a"), assistant("b"), compacted, user("c"), assistant("d"))
    assert [message["content"] for message in found.messages] == ["s", "tu", "v", "w", "c"]


def test_outputs_in_older_and_newer_forms_are_their_text():
    (found,) = read_records(
        user("a"),
        item("function_call_output", call_id="1", output={"content": "x", "success": True}),
        item("function_call_output", call_id="2", output=[{"type": "input_text", "text": "y"}]),
        assistant("b"),
    )
    assert [message["content"] for message in found.messages] == ["a", "x", "y"]


def test_an_image_keeps_its_place_among_the_parts():
    image = {"type": "input_image", "image_url": "data:x"}
    content = [{"type": "input_text", "text": "see"}, image]
    (found,) = read_records(item("message", role="user", content=content), assistant("b"))
    assert found.messages[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:x"}},
    ]


def test_the_session_of_a_forked_file_is_its_first():
    metas = [{"type": "session_meta", "payload": {"id": name}} for name in ("new", "old")]
    (found,) = read_records(*metas, user("a"), assistant("b"))
    assert found.conversation_id == "new"


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "response_item"},
        {"type": ["x"], "payload": {}},
        item("function_call", name="f", arguments={"a": 1}),
        item("message", role="user", content=7),
        {"type": "compacted", "payload": {"replacement_history": [7]}},
    ],
)
def test_a_broken_line_is_named_and_the_rest_is_read(broken):
    *_, bad, good = read_records(user("a"), broken, assistant("b"))
    assert bad.line == 2
    assert good.reply == {"role": "assistant", "content": "b"}
