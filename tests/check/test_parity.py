import json

import pytest

from warmturn.check import compare_renderings

TOOL = {"name": "süche", "args": {"b": 1, "a": ["<x>", 2]}}
REFERENCE = f"tools: {json.dumps(TOOL, ensure_ascii=False)}\nhi"


@pytest.mark.parametrize(
    "spelling",
    [
        json.dumps(TOOL),
        json.dumps(TOOL, ensure_ascii=False, separators=(",", ":")),
        json.dumps(TOOL, sort_keys=True),
        json.dumps(TOOL, ensure_ascii=False, indent=2),
        json.dumps(TOOL).replace("<", "\\u003c"),
        json.dumps(json.dumps(TOOL)),
    ],
)
def test_the_same_json_spelled_otherwise_is_a_mismatch_of_tojson(spelling):
    found = compare_renderings(REFERENCE, f"tools: {spelling}\nhi")
    assert (found.is_equal, found.cause) == (False, "renderer.tojson_mismatch")
    assert REFERENCE[: found.shared_chars] == f"tools: {spelling}"[: found.shared_chars]


def test_equal_texts_are_equal():
    found = compare_renderings(REFERENCE, REFERENCE)
    assert (found.is_equal, found.cause, found.shared_chars) == (True, "none", len(REFERENCE))


@pytest.mark.parametrize(
    "other",
    [
        REFERENCE + "!",
        REFERENCE.replace("hi", "ho"),
        REFERENCE.replace("1", "2"),
        REFERENCE.replace(": 1", ": true"),
        "",
    ],
)
def test_any_other_difference_is_not_blamed_on_tojson(other):
    assert compare_renderings(REFERENCE, other).cause == "unknown"
