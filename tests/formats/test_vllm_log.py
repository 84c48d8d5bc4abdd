"""The text log of a vLLM server."""

import pytest

from tests.support.logs import DATA, read_data, read_text
from warmturn.errors import InvalidInput
from warmturn.formats import vllm_log
from warmturn.formats.format import Entry
from warmturn.formats.record import BadLine, LoggedRequest

STAMP = "DEBUG 11-29 10:00:00 [logger.py:49]"


def details(request_id, prompt, ids="None"):
    return (
        f"{STAMP} Request {request_id} details: prompt: {prompt!r}, "
        f"prompt_token_ids: {ids}, prompt_embeds shape: None."
    )


def response(request_id, text):
    return f"{STAMP} Generated response {request_id}: output: {text!r}, finish_reason: stop"


def test_three_lines_make_a_request_in_the_order_of_the_log():
    source = str(DATA / "vllm.log")
    assert read_data("vllm.log") == [
        LoggedRequest(
            source=source,
            line=2,
            level="full",
            request_id="chatcmpl-1",
            adapter="sql",
            timestamp_s=91879200.0,
            end_s=91879203.0,
            prompt_text='<|user|>it\'s "x", prompt_token_ids: [9]\n<|assistant|>',
            prompt_token_ids=(1, 2, 3),
            reply_text="Done",
            reply_token_ids=(7, 8),
            finish_reason="stop",
        ),
        LoggedRequest(
            source=source,
            line=4,
            level="full",
            request_id="chatcmpl-2",
            timestamp_s=91879201.0,
            end_s=91879202.0,
            prompt_text="it's",
            prompt_token_ids=(4,),
            reply_text="Ok\n",
        ),
    ]


def test_older_servers_write_prompt_and_parameters_in_one_line():
    first, second = read_data("vllm_old.log")
    assert (first.request_id, first.prompt_text) == ("cmpl-c5-0", "How to")
    assert first.prompt_token_ids == (1, 2)
    assert (second.prompt_text, second.prompt_token_ids) == ("How", None)


def test_a_year_counts_where_the_log_has_one():
    (found,) = read_text(details("a", "x").replace("11-29", "2026-11-29"))
    assert found.timestamp_s == 1795946400.0


def test_an_id_used_twice_is_two_requests_and_the_reply_goes_to_the_newer():
    first, second = read_text("\n".join([details("a", "x"), details("a", "y"), response("a", "z")]))
    assert (first.prompt_text, first.reply_text) == ("x", None)
    assert (second.prompt_text, second.reply_text) == ("y", "z")


def test_a_piece_of_a_streamed_reply_is_no_reply():
    piece = response("a", "z").replace("response a:", "response a (streaming delta):")
    (found,) = read_text("\n".join([details("a", "x"), piece]))
    assert found.reply_text is None


def test_answered_requests_no_longer_count_as_waiting(monkeypatch):
    monkeypatch.setattr(vllm_log, "MAX_PENDING_CHARS", 250)
    pairs = [(details(name, name), response(name, name)) for name in "abcd"]
    found = read_text("\n".join(line for pair in pairs for line in pair))
    assert [request.reply_text for request in found] == ["a", "b", "c", "d"]


def test_nothing_of_an_answered_request_is_kept():
    log = vllm_log._Log()
    for number, line in enumerate([details("a", "x"), response("a", "y")], 1):
        found = list(log.add(Entry("log", number, line)))
    assert len(found) == 1
    assert (log._pending, log._line_of, log._num_chars) == ({}, {}, 0)


def test_a_completion_is_answered_without_its_number():
    (found,) = read_text("\n".join([details("cmpl-1-0", "x"), response("cmpl-1", "y")]))
    assert found.reply_text == "y"


def test_requests_go_without_a_reply_when_too_much_waits(monkeypatch):
    monkeypatch.setattr(vllm_log, "MAX_PENDING_CHARS", 300)
    lines = [details(name, name * size) for name, size in (("a", 150), ("b", 160), ("c", 170))]
    lines.append(response("a", "late"))
    assert [found.reply_text for found in read_text("\n".join(lines))] == [None] * 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (details("a", "x")[:-40].replace("'x'", "'x"), "prompt breaks off"),
        (details("a", "x", ids="[1, 2, ...]"), "prompt_token_ids is shortened"),
        (details("a", "x", ids="[1, 2.5]"), "prompt_token_ids is not one flat list"),
        (details("a", "x", ids="[1 2]"), "prompt_token_ids cannot be read"),
        (details("a", None), "the request has no prompt"),
        (details("a", "x").replace("'x'", r"'\ud800'"), "prompt cannot be read"),
        (details("a", "x").replace("'x'", r"'\d'"), "prompt breaks off"),
    ],
)
def test_a_line_that_is_cut_is_bad_and_the_next_is_read(line, reason):
    bad, good = read_text("\n".join([line, details("b", "y")]))
    assert isinstance(bad, BadLine)
    assert (bad.line, bad.reason.startswith(reason)) == (1, True), bad.reason
    assert good.prompt_text == "y"


def test_a_log_at_info_has_no_prompts_and_says_how_to_get_them():
    line = "INFO 11-29 10:00:00 [logger.py:63] Received request a: params: SamplingParams(n=1)"
    with pytest.raises(InvalidInput, match="VLLM_LOGGING_LEVEL=DEBUG"):
        read_text(line)


def test_a_cut_log_is_refused_whole():
    prompts = [details(str(n), "system text " * 8 + str(n) * 9)[:-1] for n in range(3)]
    with pytest.raises(InvalidInput, match=r"log: the prompts in this log are cut at 105"):
        read_text("\n".join(prompts))
