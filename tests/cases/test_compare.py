"""The comparison itself: a right answer passes, every kind of wrong answer fails."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases.compare import differences
from tests.cases.discovery import load_case

OWN_CASES = sorted(path.parent for path in (Path(__file__).parent / "data").glob("*/input.json"))


def texts(kind: str, expected: dict[str, Any], got: dict[str, Any]) -> list[str]:
    return [str(difference) for difference in differences(kind, expected, got)]


def log(**pair: Any) -> dict[str, Any]:
    return {"runs": [{"id": "r", "verdict": "break", "pairs": [pair]}]}


@pytest.mark.parametrize("folder", OWN_CASES, ids=lambda folder: folder.name)
def test_each_right_answer_equals_itself(folder):
    case, expected = load_case(folder)
    assert differences(case.kind, expected, json.loads(json.dumps(expected))) == []


@pytest.mark.parametrize("folder", OWN_CASES, ids=lambda folder: folder.name)
def test_an_empty_answer_is_wrong(folder):
    case, expected = load_case(folder)
    assert differences(case.kind, expected, {})


@pytest.mark.parametrize("folder", OWN_CASES, ids=lambda folder: folder.name)
def test_any_single_wrong_value_is_found(folder):
    """Spoils one leaf at a time; only remarks for people and unchecked nulls may be spoilt."""
    case, expected = load_case(folder)
    for path, value in leaves(expected):
        unchecked = value is None or path[-1] in {"prev_at", "next_at"}
        if unchecked or case.kind == "fit-capacity-log":
            continue
        answer = copy.deepcopy(expected)
        place = answer
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = spoilt(value)
        assert differences(case.kind, expected, answer), (path, value)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    children = {dict: dict.items, list: enumerate}.get(type(value))
    if children is None:
        yield path, value
        return
    for key, inner in children(value):
        yield from leaves(inner, (*path, key))


def spoilt(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 3
        case _:
            return f"{value}!"


def test_the_message_names_path_expected_and_got():
    expected, got = {"choice": {"q 1": "w2"}}, {"choice": {"q 1": "w1"}}
    assert texts("fleet-choice", expected, got) == ["choice['q 1']: expected 'w2', got 'w1'"]


def test_all_differences_are_listed_not_only_the_first():
    expected = {"distinct_namespaces": 3, "equal_pairs": 1}
    got = {"distinct_namespaces": 2}
    assert texts("namespaces", expected, got) == [
        "distinct_namespaces: expected 3, got 2",
        "equal_pairs: expected 1, got nothing",
    ]


def test_null_is_not_checked():
    expected = {"same_worker": [], "no_key": ["a"], "same_across_replicas": None}
    assert texts("affinity", expected, {"same_worker": [], "no_key": ["a"]}) == []


@pytest.mark.parametrize(
    ("kind", "expected", "got"),
    [
        ("chunk-floor", {"rows": {"a": {"stored": None}}}, {"rows": {"a": {"stored": 0}}}),
        ("metrics-text", {"files": {"f": {"hit_rate": None}}}, {"files": {"f": {"hit_rate": 0.0}}}),
        ("metrics-text", {"files": {"f": {"hit_rate": None}}}, {"files": {"f": {}}}),
        ("stream-usage", {"upstream_stream_options": None}, {"upstream_stream_options": {}}),
        ("request-log", log(first_divergence_char=None), log(first_divergence_char=7)),
        ("full-hit-cap", {"rows": {"r": {"residency": None}}}, {"rows": {"r": {"residency": 1.0}}}),
    ],
)
def test_null_is_an_answer_where_the_kind_says_so(kind, expected, got):
    assert len(differences(kind, expected, got)) == 1
    assert differences(kind, expected, expected) == []


@pytest.mark.parametrize(("verdict", "is_checked"), [("append-only", True), (None, False)])
def test_no_level_is_an_answer_for_a_pair_that_only_appends(verdict, is_checked):
    expected = log(verdict=verdict, first_level_that_breaks=None)
    got = log(verdict=verdict, first_level_that_breaks="text")
    assert bool(differences("request-log", expected, got)) is is_checked


def test_null_for_an_answer_that_is_due_is_wrong():
    assert texts("namespaces", {"equal_pairs": 1}, {"equal_pairs": None}) == [
        "equal_pairs: expected 1, got None"
    ]


@pytest.mark.parametrize("field", ["shared_chars", "lost_chars", "first_divergence_char"])
def test_character_counts_may_be_two_off(field):
    assert texts("request-log", log(**{field: 100}), log(**{field: 98})) == []
    assert texts("request-log", log(**{field: 100}), log(**{field: 103})) == [
        f"runs[0].pairs[0].{field}: expected 100 (within 2), got 103"
    ]


def test_other_character_counts_are_exact():
    assert texts("request-log", log(prev_total_chars=100), log(prev_total_chars=101))


def test_shared_chars_of_a_renderer_are_exact():
    expected, got = ({"variants": {"v": {"shared_chars": n}}} for n in (70, 71))
    assert texts("render-parity", expected, got) == ["variants.v.shared_chars: expected 70, got 71"]


@pytest.mark.parametrize(
    ("expected", "got", "is_right"),
    [
        (0.5, 0.50009, True),
        (0.5, 0.5002, False),
        (1000.0, 1000.09, True),
        (1000.0, 1000.2, False),
        (2, 2.0, True),
        (1.0, True, False),
        (1.0, float("nan"), False),
        (1.0, "1.0", False),
    ],
)
def test_real_numbers_have_an_absolute_and_above_one_a_relative_tolerance(expected, got, is_right):
    found = differences("volume-horizon", {"total_s": expected}, {"total_s": got})
    assert (found == []) is is_right


def test_load_times_have_the_absolute_tolerance_only():
    expected, got = ({"rows": {"a": {"load_s": value}}} for value in (1000.0, 1000.01))
    assert texts("reload-or-recompute", expected, got)


def test_mean_load_has_its_own_tolerance():
    assert differences("fleet-choice", {"mean_load": 3.0}, {"mean_load": 3.0009}) == []
    assert differences("fleet-choice", {"mean_load": 3.0}, {"mean_load": 3.0011})


@pytest.mark.parametrize("got", [131_073, 131_072.0, "131072", True])
def test_byte_counts_are_exact_integers(got):
    expected = {"answers": {"a": {"kv_bytes_per_token": 131_072}}}
    assert differences("geometry", expected, {"answers": {"a": {"kv_bytes_per_token": got}}})


def test_a_fitted_line_has_the_tolerance_the_case_states():
    expected = {"slope_bytes_per_token": 1000.0, "relative_tolerance": 0.02, "sequences": 4}
    near = {"slope_bytes_per_token": 1019.0, "sequences": 4}
    assert differences("fit-capacity-log", expected, near) == []
    assert differences("fit-capacity-log", expected, near | {"slope_bytes_per_token": 1021.0})
    assert differences("fit-capacity-log", expected, near | {"sequences": 5})


def test_lists_are_compared_in_order_and_length():
    expected = {"hits": [1, 2], "final_cached": [3, 4]}
    assert differences("cache-steps", expected, {"hits": [2, 1], "final_cached": [3, 4]})
    assert differences("cache-steps", expected, {"hits": [1], "final_cached": [3, 4]})


def test_the_final_cache_is_compared_as_a_set():
    assert differences("cache-steps", {"final_cached": [3, 4]}, {"final_cached": [4, 3]}) == []
    assert differences("cache-steps", {"final_cached": [3, 4]}, {"final_cached": [4, 4]})


def test_answers_about_more_than_was_asked_are_ignored():
    expected, got = {"final_state": {"w": "EXACT"}}, {"final_state": {"w": "EXACT", "v": "UNKNOWN"}}
    assert differences("events", {"runs": [expected]}, {"runs": [got]}) == []


def test_an_invented_entry_is_wrong_where_the_whole_object_is_the_answer():
    expected, got = {"unknown_events": {"w": 1}}, {"unknown_events": {"w": 1, "v": 2}}
    assert texts("events", {"runs": [expected]}, {"runs": [got]}) == [
        "runs[0].unknown_events.v: expected nothing, got 2"
    ]


def test_free_form_answers_are_equal_as_json():
    expected = {"pairs": [{"id": "a", "reuse": {"paged": {"16": 32}}}]}
    for wrong in ({"paged": {"16": 33}}, {"paged": {"16": 32.0}}, {"paged": {}}, [32]):
        assert differences("token-log", expected, {"pairs": [{"id": "a", "reuse": wrong}]})


def test_remarks_for_people_are_not_compared():
    assert differences("request-log", log(prev_at="x"), log(prev_at="y")) == []
