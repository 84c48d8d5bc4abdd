"""Claude Code sessions: a tree of lines."""

from tests.support.logs import DATA, read_data, read_records
from warmturn.formats import claude_code
from warmturn.formats.record import LoggedRequest


def line(uuid, parent, content, *, answer=None, session="S", **more):
    message = {"role": "assistant" if answer else "user", "content": content}
    if answer:
        message["id"] = answer
    kind = message["role"]
    record = {"uuid": uuid, "parentUuid": parent, "sessionId": session, "type": kind, **more}
    return {**record, "message": message}


def said(request):
    return [message["content"] for message in request.messages]


def test_a_session_becomes_the_requests_that_made_it():
    source = str(DATA / "claude_code.jsonl")
    calls = [
        {
            "id": "t1",
            "type": "function",
            "function": {"name": "Read", "arguments": '{"path": "x"}'},
        },
        {
            "id": "t2",
            "type": "function",
            "function": {"name": "Read", "arguments": '{"path": "y"}'},
        },
    ]
    answer = {
        "role": "assistant",
        "content": None,
        "reasoning": "Read both.",
        "tool_calls": calls,
    }
    task = {"role": "user", "content": "Fix it"}
    common = {"source": source, "level": "messages", "model": "claude"}
    assert read_data("claude_code.jsonl") == [
        LoggedRequest(
            **common,
            line=3,
            request_id="msg_a",
            conversation_id="S",
            timestamp_s=1795946400.0,
            end_s=1795946403.0,
            messages=(task,),
            reply=answer,  # three lines, one message
            finish_reason="tool_calls",
            prompt_tokens=100,
            cached_tokens=90,
            completion_tokens=40,
        ),
        LoggedRequest(
            **common,
            line=9,
            request_id="msg_b",
            conversation_id="S",
            timestamp_s=1795946406.0,
            end_s=1795946407.0,
            messages=(
                task,
                answer,
                # The first result hangs on another line than the path of the answer takes.
                {"role": "tool", "tool_call_id": "t1", "content": "X"},
                {"role": "tool", "tool_call_id": "t2", "content": "Y"},
            ),
            reply={"role": "assistant", "content": "Done."},
            finish_reason="stop",
        ),
        LoggedRequest(
            **common,
            line=11,
            request_id="msg_c",
            conversation_id="S/k1",
            timestamp_s=1795946408.0,
            end_s=1795946409.0,
            messages=({"role": "user", "content": "Search"},),
            reply={"role": "assistant", "content": "Found."},
        ),
        LoggedRequest(
            **common,
            line=13,
            request_id="msg_d",
            conversation_id="S/gone",
            timestamp_s=1795946410.0,
            end_s=1795946411.0,
            messages=({"role": "user", "content": "Later"},),
            reply={"role": "assistant", "content": "Yes."},
        ),
    ]


def test_two_answers_to_one_line_share_its_history():
    one, two = read_records(
        line("u", None, "a"),
        line("x", "u", "b", answer="m1"),
        line("y", "u", "c", answer="m2"),
    )
    assert (said(one), said(two)) == (["a"], ["a"])


def test_a_resumed_session_repeats_lines_and_they_count_once():
    lines = [line("u", None, "a"), line("x", "u", "b", answer="m1", timestamp=10)]
    again = [{**record, "timestamp": 20} for record in lines]
    (found,) = read_records(*lines, *again)
    assert found.reply == {"role": "assistant", "content": "b"}
    assert found.end_s == 10


def test_lines_of_an_answer_that_repeat_a_block_add_nothing():
    block = {"type": "text", "text": "b"}
    (found,) = read_records(
        line("u", None, "a"),
        line("x", "u", [block], answer="m1"),
        line("y", "x", [block, {"type": "text", "text": "c"}], answer="m1"),
    )
    assert [part["text"] for part in found.reply["content"]] == ["b", "c"]


def test_a_side_chain_without_a_name_is_named_by_its_first_line():
    side = {"isSidechain": True}
    (found,) = read_records(line("k", None, "a", **side), line("x", "k", "b", answer="m", **side))
    assert found.conversation_id == "S/k"


def test_an_agent_is_a_conversation_of_its_own():
    agent = {"isSidechain": True, "agentId": "ag1"}
    (found,) = read_records(
        line("u", None, "a", **agent), line("x", "u", "b", answer="m1", **agent)
    )
    assert found.conversation_id == "S/ag1"


def test_a_circle_of_parents_is_bad_and_ends():
    first, bad = read_records(
        line("u", None, "a"),
        line("x", "u", "b", answer="m1"),
        line("p", "q", "c"),
        line("q", "p", "d"),
        line("y", "q", "e", answer="m2"),
    )
    assert said(first) == ["a"]
    assert (bad.line, bad.reason) == (5, "the parents of this line form a circle")


def test_an_answer_without_any_line_before_it_is_bad():
    (bad,) = read_records(line("x", None, "b", answer="m1"))
    assert bad.reason == "the message before this answer is not in the file"


def test_sessions_in_one_file_come_out_one_after_the_other(monkeypatch):
    monkeypatch.setattr(claude_code, "MAX_OPEN_SESSIONS", 1)
    found = read_records(
        line("u", None, "a", session="S"),
        line("v", None, "b", session="T"),  # S has no answer yet and is taken as complete
        line("w", "v", "c", answer="m1", session="T"),
    )
    assert [request.conversation_id for request in found] == ["T"]


def test_a_broken_message_is_named_and_the_session_goes_on():
    broken = line("x", "u", "b", answer="m1")
    broken["message"]["content"] = 7
    bad, good = read_records(
        line("u", None, "a"), broken, line("v", "u", "c"), line("y", "v", "d", answer="m2")
    )
    assert (bad.line, said(good)) == (2, ["a", "c"])
