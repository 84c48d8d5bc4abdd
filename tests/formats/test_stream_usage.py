from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.formats import (
    AnswerUsage,
    StreamUsage,
    read_answer_usage,
    upstream_stream_options,
    wants_usage,
)

TEXT = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"Hi \\"usage\\""}}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":32}}}\n\n'
)
DONE = b"data: [DONE]\n\n"
STREAM = TEXT + STOP + USAGE + DONE


def passed(stream: bytes, *, shown: bool, cuts: tuple[int, ...] = ()) -> tuple[bytes, AnswerUsage]:
    usage = StreamUsage(shown=shown)
    edges = [0, *sorted(cuts), len(stream)]
    parts = [stream[a:b] for a, b in pairwise(edges)]
    return b"".join(map(usage.feed, parts)) + usage.finish(), usage.usage


def test_the_usage_event_is_read_and_taken_out():
    seen, usage = passed(STREAM, shown=False)
    assert seen == TEXT + STOP + DONE
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (40, 32, 2)


def test_who_asked_for_usage_gets_every_byte():
    seen, usage = passed(STREAM, shown=True)
    assert seen == STREAM
    assert usage.cached_tokens == 32


@given(st.lists(st.integers(0, len(STREAM)), max_size=12), st.booleans())
def test_it_does_not_matter_where_the_network_cuts(cuts, shown):
    seen, usage = passed(STREAM, shown=shown, cuts=tuple(cuts))
    assert seen == (STREAM if shown else TEXT + STOP + DONE)
    assert usage.cached_tokens == 32


def test_usage_beside_a_choice_is_read_and_stays():
    event = b'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":3}}\n\n'
    seen, usage = passed(event + DONE, shown=False)
    assert seen == event + DONE
    assert (usage.prompt_tokens, usage.cached_tokens) == (3, None)


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[],"prompt_filter_results":[]}\n\n',
        b'data: {"choices":[],"usage":null}\n\n',
        b'data: {"choices":[],"usage":"\xff"}\n\n',
        b'data: {"choices":[],"usage"\n\n',
        b': "usage"\n\n',
        b'event: error\ndata: {"error":{"message":"usage"}}\n\n',
        b'data: {"type":"message_delta","usage":{"output_tokens":3}}\n\n',
    ],
)
def test_all_other_events_pass_unchanged(event):
    seen, usage = passed(event + DONE, shown=False)
    assert seen == event + DONE
    assert usage.cached_tokens is None


def test_lines_may_end_in_carriage_returns():
    stream = STREAM.replace(b"\n", b"\r\n")
    seen, usage = passed(stream, shown=False)
    assert seen == (TEXT + STOP + DONE).replace(b"\n", b"\r\n")
    assert usage.cached_tokens == 32


def test_a_stream_that_breaks_off_keeps_its_bytes_and_has_no_usage():
    seen, usage = passed(TEXT + USAGE[:40], shown=False)
    assert seen == TEXT + USAGE[:40]
    assert usage.cached_tokens is None


def test_an_event_without_end_is_not_held_for_ever():
    usage = StreamUsage(shown=False)
    assert len(usage.feed(b"data: " + b"x" * (2**20 + 1))) > 2**20


@pytest.mark.parametrize(
    ("body", "sent", "wanted"),
    [
        ({"stream": True}, {"include_usage": True}, False),
        ({"stream": True, "stream_options": None}, {"include_usage": True}, False),
        (
            {"stream": True, "stream_options": {"include_usage": False, "other": 1}},
            {"include_usage": True, "other": 1},
            False,
        ),
        (
            {"stream": True, "stream_options": {"include_usage": True}},
            {"include_usage": True},
            True,
        ),
        ({"stream": False}, None, False),
        ({}, None, False),
    ],
)
def test_usage_is_asked_for_on_every_stream_and_on_nothing_else(body, sent, wanted):
    assert upstream_stream_options(body) == sent
    assert wants_usage(body) is wanted


RESPONSES = (
    b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1"}}\n\n',
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"x"}\n\n',
    (
        b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"resp_1",'
        b'"usage":{"input_tokens":40,"output_tokens":2,"input_tokens_details":{"cached_tokens":32}}}}\n\n'
    ),
)
MESSAGES = (
    (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","usage":'
        b'{"input_tokens":3,"cache_read_input_tokens":32,"cache_creation_input_tokens":5,'
        b'"output_tokens":1}}}\n\n'
    ),
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"x"}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":2}}\n\n',
)


@pytest.mark.parametrize(("events", "name"), [(RESPONSES, "resp_1"), (MESSAGES, "msg_1")])
def test_streams_of_other_apis_tell_the_same(events, name):
    stream = b"".join(events)
    seen, usage = passed(stream, shown=False)
    assert seen == stream
    assert usage == AnswerUsage(40, 32, 2, name)


def test_a_stream_names_its_answer():
    assert passed(STREAM, shown=False)[1].response_id == "x"


def test_an_answer_in_one_piece_tells_usage_and_name():
    body = (
        b'{"id":"cmpl-1","choices":[{"text":"x"}],"usage":{"prompt_tokens":40,'
        b'"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":32}}}'
    )
    assert read_answer_usage(body) == AnswerUsage(40, 32, 2, "cmpl-1")
    message = (
        b'{"id":"msg_1","usage":{"input_tokens":8,"cache_read_input_tokens":32,"output_tokens":2}}'
    )
    assert read_answer_usage(message) == AnswerUsage(40, 32, 2, "msg_1")


def test_the_tail_of_a_long_answer_is_enough_for_its_usage():
    tail = b'.5,0.25]}],"model":"m","usage":{"prompt_tokens":7,"total_tokens":7}}'
    assert read_answer_usage(tail, is_tail=True) == AnswerUsage(prompt_tokens=7)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"usage":3}', b'{"id":"\xff"}', b'"usage":'])
def test_an_answer_that_says_nothing_readable_has_no_usage(body):
    assert read_answer_usage(body) == AnswerUsage()
    assert read_answer_usage(body, is_tail=True) == AnswerUsage()
