import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.errors import InvalidRequest
from warmturn.formats.body import MAX_DEPTH, check_depth, is_deep, read_json, typed


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    tags: list[str] | None = None


def nested(depth: int) -> list:
    """Return lists in lists, `depth` of them."""
    value: list = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_an_object_is_read_and_the_later_of_two_equal_keys_counts():
    assert read_json(b'{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "truncated"),
        (b"[1]", "array"),
        (b"null", "null"),
        (b"true", "boolean"),
        (b"3", "number"),
        (b'"x"', "string"),
        (b'{"a": Infinity}', "not valid JSON"),
        (b'{"a": 1e999}', "not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (rb'{"a": "\udc00 half a pair"}', "not valid JSON"),
        (b'{"a":' * 50_000, "too deeply"),
    ],
)
def test_anything_else_is_refused_with_the_reason(body, says):
    with pytest.raises(InvalidRequest, match=says):
        read_json(body)


def test_typed_ignores_what_the_class_does_not_have():
    assert typed({"x": 1, "y": 2}, Point) == Point(x=1)


@pytest.mark.parametrize(
    ("value", "param", "says"),
    [
        ({"x": "1"}, "x", "expected `int`, got `str`"),
        ({"x": True}, "x", "got `bool`"),
        ({"x": 1, "tags": ["a", 2]}, "tags[1]", "expected `str`"),
        ({}, "x", "x: is missing"),
        ([], None, "the body: expected `object`"),
    ],
)
def test_a_wrong_type_is_refused_with_its_path(value, param, says):
    with pytest.raises(InvalidRequest, match=says.replace("[", r"\[")) as caught:
        typed(value, Point)
    assert caught.value.param == param


def test_a_path_opens_with_the_field_that_holds_the_value():
    with pytest.raises(InvalidRequest) as caught:
        typed([{"x": 1}, {}], list[Point], under="points")
    assert caught.value.param == "points[1].x"


_JSON = st.recursive(
    st.text('[]{}"\\a', max_size=4) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
)


@given(value=_JSON, num_around=st.integers(MAX_DEPTH - 8, MAX_DEPTH + 2))
def test_the_depth_of_json_text_is_that_of_its_value(value, num_around):
    for number in range(num_around):
        value = {"k": value, "b": []} if number % 2 else [[], value, "]"]
    try:
        check_depth(value, param="deep")
        is_refused = False
    except InvalidRequest:
        is_refused = True
    assert is_deep(json.dumps(value).encode()) is is_refused


def test_depth_is_allowed_up_to_the_limit():
    check_depth(nested(MAX_DEPTH), param="deep")
    check_depth({"a": {"b": [1, "[[[["]}}, param="deep")
    with pytest.raises(InvalidRequest, match="deep is nested") as caught:
        check_depth(nested(MAX_DEPTH + 1), param="deep")
    assert caught.value.param == "deep"
