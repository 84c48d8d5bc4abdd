"""Values out of foreign JSON."""

import time

import pytest

from warmturn.errors import InvalidInput
from warmturn.formats import fields


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1795946400, 1795946400.0),
        (1795946400.25, 1795946400.25),
        (1795946400250, 1795946400.25),
        (1795946400250000, 1795946400.25),
        (1795946400250000000, 1795946400.25),
        ("2026-11-29T10:00:00Z", 1795946400.0),
        ("2026-11-29T12:00:00+02:00", 1795946400.0),
        ("2026-11-29T10:00:00", 1795946400.0),  # without an offset: UTC
        ("2026-11-29 10:00:00.250", 1795946400.25),
        ("soon", None),
        ("0001-01-01T00:00:00+14:00", -62135647200.0),
        (0, None),
        (-5, None),
        (True, None),
        ([], None),
        (None, None),
        (10**400, None),
    ],
)
def test_times_are_seconds_since_the_epoch_whatever_their_unit(value, expected):
    found = fields.seconds({"t": value}, "t")
    assert found == (None if expected is None else pytest.approx(expected))


def test_a_time_without_an_offset_does_not_depend_on_the_machine(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert fields.seconds({"t": "2026-11-29T10:00:00"}, "t") == 1795946400.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_first_field_of_the_right_type_counts():
    record = {"a": "", "b": 7, "c": "x", "d": True, "e": {"f": 1}, "g": -1}
    assert fields.text(record, "missing", "a", "b", "c") == "x"
    assert fields.count(record, "c", "d", "g", "b") == 7
    assert fields.mapping(record, "c", "e") == {"f": 1}
    assert fields.text(record, "a") is None
    assert fields.count(record, "g") is None


@pytest.mark.parametrize(
    "value", [7, "1,2", [1.0], ["1"], [[1]], [None], [2**31], [-1], {"0": 1}, True]
)
def test_what_is_no_flat_list_of_ids_is_refused(value):
    with pytest.raises(InvalidInput, match="ids"):
        fields.token_ids(value, name="ids")


def test_ids_stay_what_they_are():
    assert fields.token_ids([0, 2**31 - 1], name="ids") == (0, 2**31 - 1)
    assert fields.token_ids([], name="ids") == ()
    assert fields.token_ids(None, name="ids") is None


@pytest.mark.parametrize("content", [None, "", "x", [], [{"type": "text", "text": "x"}]])
def test_content_is_text_parts_or_null(content):
    assert fields.messages([{"role": "user", "content": content}])[0]["content"] == content


@pytest.mark.parametrize("message", [{"role": "user", "content": 7}, {"role": None}, "x", None])
def test_a_message_that_is_none_is_refused_with_its_place(message):
    with pytest.raises(InvalidInput, match=r"messages\[0\]"):
        fields.messages([message])


@pytest.mark.parametrize("calls", [7, [7], {"id": "x"}])
def test_tool_calls_are_a_list_of_objects(calls):
    with pytest.raises(InvalidInput, match="tool_calls is not a list of objects"):
        fields.messages([{"role": "assistant", "content": None, "tool_calls": calls}])
