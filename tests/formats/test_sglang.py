"""SGLang requests and the server's request log."""

from tests.support.logs import DATA, read_data, read_records
from warmturn.formats import sglang
from warmturn.formats.record import LoggedRequest


def received(rid, ids):
    return {"event": "request.received", "rid": rid, "obj": {"input_ids": ids}}


def finished(rid, **out):
    return {"event": "request.finished", "rid": rid, "out": {"meta_info": {}, **out}}


def test_generate_requests_come_with_their_responses_or_alone():
    source = str(DATA / "sglang.jsonl")
    assert read_data("sglang.jsonl") == [
        LoggedRequest(
            source=source,
            line=1,
            level="full",
            request_id="g1",
            conversation_id="sess",
            adapter="sql",
            timestamp_s=1795946400.0,
            end_s=1795946400.5,
            prompt_text="<u>Hi<a>",
            reply_text="Yo",
            reply_token_ids=(5, 6),
            finish_reason="stop",
            prompt_tokens=4,
            completion_tokens=2,
            cached_tokens=3,
        ),
        LoggedRequest(
            source=source, line=2, level="full", request_id="g2", prompt_token_ids=(1, 2, 3)
        ),
    ]


def test_the_servers_log_pairs_received_with_finished_and_keeps_what_never_finished():
    source = str(DATA / "sglang_server.jsonl")
    assert read_data("sglang_server.jsonl") == [
        LoggedRequest(
            source=source,
            line=1,
            level="full",
            request_id="r1",
            timestamp_s=1795946400.0,
            prompt_token_ids=(1, 2),
            reply_text="a",
            reply_token_ids=(3,),
            finish_reason="length",
            prompt_tokens=2,
            cached_tokens=0,
            completion_tokens=1,
        ),
        LoggedRequest(
            source=source,
            line=2,
            level="full",
            request_id="r2",
            timestamp_s=1795946401.0,
            prompt_token_ids=(1, 9),
        ),
    ]


def test_a_finished_record_that_repeats_the_request_is_read_once():
    again = {**finished("a", output_ids=[2]), "obj": {"input_ids": [1]}}
    (found,) = read_records(received("a", [1]), again)
    assert (found.prompt_token_ids, found.reply_token_ids) == ((1,), (2,))


def test_requests_that_never_finish_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(sglang, "MAX_OPEN_REQUESTS", 1)
    first, broken, last = read_records(
        received("a", [1]), received("b", 7), received("c", [3]), finished("a", text="late")
    )[:3]
    assert (first.prompt_token_ids, first.reply_text) == ((1,), None)
    assert (broken.line, broken.reason) == (2, "input_ids is a number, not a list of token ids")
    assert last.line == 4  # its request was let go: an answer without a prompt


def test_prompts_cut_by_the_log_level_are_refused():
    text = "a" * 1024 + " ... " + "b" * 1024
    for body in ({"text": text}, {"input_ids": "[1, 2] ... [8, 9]"}):
        (bad,) = read_records({**body, "sampling_params": {}})
        assert "--log-requests-level 3" in bad.reason
    (whole,) = read_records({"text": text + "c", "sampling_params": {}})
    assert whole.prompt_text == text + "c"
