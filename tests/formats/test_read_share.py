"""A share of a log: what is wanted, and nothing of the rest but its place."""

import io
import json

import pytest

from warmturn.formats import BadLine, LoggedRequest
from warmturn.formats.format import Entry
from warmturn.formats.openai_log import conversation_of, convert
from warmturn.formats.reading import read_share
from warmturn.formats.record import Skipped

MESSAGES = [{"role": "user", "content": "Hi"}]
RECORDS = [
    {"messages": MESSAGES, "session_id": "a"},
    {"messages": MESSAGES, "session_id": "", "thread_id": "b"},
    {"messages": MESSAGES, "session_id": 7, "chat_id": "c"},
    {"messages": MESSAGES, "metadata": {"conversation_id": "d"}},
    {"request": {"messages": MESSAGES, "metadata": {"session_id": "e"}}},
    {"request": json.dumps({"messages": MESSAGES, "metadata": {"session_id": "e2"}})},
    {"messages": MESSAGES, "session_id": "top", "metadata": {"session_id": "below"}},
    {"messages": MESSAGES},
]


@pytest.mark.parametrize("record", RECORDS)
def test_the_id_alone_is_the_one_of_the_whole_record(record):
    whole = next(iter(convert(Entry("log", 1, record))))
    assert conversation_of(json.dumps(record).encode()) == whole.conversation_id


@pytest.mark.parametrize("data", [b"{broken", b"[]", b"7", b"", b"\xff", b'{"messages": 7}'])
def test_what_cannot_be_read_has_no_id(data):
    assert conversation_of(data) is None


def shared(log, wanted, **options):
    return list(read_share(io.BytesIO(log), wanted, source="log", **options))


def lines(*records):
    return b"\n".join(r if isinstance(r, bytes) else json.dumps(r).encode() for r in records)


def test_each_record_is_in_its_place_wanted_or_not():
    log = lines(*RECORDS[:3], b"{broken", {"session_id": "a", "messages": 7})
    asked = []

    def wanted(name, size):
        asked.append((name, size > 0))
        return name in {"a", "c"}

    kinds = [type(item) for item in shared(log, wanted)]
    assert kinds == [LoggedRequest, Skipped, LoggedRequest, Skipped, BadLine]
    assert asked == [("a", True), ("b", True), ("c", True), (None, True), ("a", True)]


def test_shares_together_are_the_log_and_each_bad_line_is_in_one():
    log = lines(*RECORDS, b"{broken", {"session_id": "a", "messages": 7}, b"[1]")
    takes = [lambda name, _: name in {"a", "b"}, lambda name, _: name not in {"a", "b"}]
    shares = [shared(log, take) for take in takes]
    for items in zip(*shares, strict=True):
        assert sum(not isinstance(item, Skipped) for item in items) == 1
    bad = [item.line for share in shares for item in share if isinstance(item, BadLine)]
    assert sorted(bad) == [9, 10, 11]


def test_a_format_that_has_no_quick_id_is_read_whole_and_asked_for_once():
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]
    log = lines(*({"id": name, "conversations": turns} for name in "ab"))
    asked = []
    items = shared(log, lambda name, _: asked.append(name) or name == "a", format="sharegpt")
    assert [type(item) for item in items] == [LoggedRequest, Skipped]
    assert asked == ["a", "b"]
