from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.formats import StreamUsage, upstream_stream_options, wants_usage

TEXT = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"Hi \\"usage\\""}}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":32}}}\n\n'
)
DONE = b"data: [DONE]\n\n"
STREAM = TEXT + STOP + USAGE + DONE


def passed(stream: bytes, *, shown: bool, cuts: tuple[int, ...] = ()) -> tuple[bytes, StreamUsage]:
    usage = StreamUsage(shown=shown)
    edges = [0, *sorted(cuts), len(stream)]
    parts = [stream[a:b] for a, b in pairwise(edges)]
    return b"".join(map(usage.feed, parts)) + usage.finish(), usage


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
