import json
from pathlib import Path

import pytest

from tests.cases.discovery import MalformedCase, find_cases, load_case, part_named
from tests.cases.rules import Rules

INPUT = {
    "kind": "namespaces",
    "namespaces": [{"id": "a", "extra_key": None, "cache_salt": "s", "lora": None}],
    "same": [],
}
EXPECTED = {
    "case": "x",
    "part": "4-salts",
    "kind": "namespaces",
    "distinct_namespaces": 1,
    "equal_pairs": 0,
    "notes": {},
}


def write_case(folder: Path, given: object = INPUT, expected: object = EXPECTED) -> Path:
    folder.mkdir(parents=True)
    (folder / "input.json").write_text(json.dumps(given))
    (folder / "expected.json").write_text(json.dumps(expected))
    return folder


def test_a_case_of_any_folder_is_found_and_loaded(tmp_path):
    folder = write_case(tmp_path / "z-case")
    (tmp_path / "README.md").touch()
    (tmp_path / "no-case").mkdir()
    assert find_cases(tmp_path) == [folder]
    case, answer = load_case(folder)
    assert (case.name, case.part, case.kind) == ("z-case", "4-salts", "namespaces")
    assert case.input == INPUT
    assert answer == {"distinct_namespaces": 1, "equal_pairs": 0}


def test_one_case_can_be_given_by_its_own_folder(tmp_path):
    folder = write_case(tmp_path / "one")
    assert find_cases(folder) == [folder]


def test_a_part_selects_its_cases(tmp_path):
    write_case(tmp_path / "a")
    other = write_case(tmp_path / "b", expected=EXPECTED | {"part": "1-checker"})
    assert find_cases(tmp_path, "1-checker") == [other]


def test_a_case_that_cannot_be_read_belongs_to_every_part(tmp_path):
    broken = write_case(tmp_path / "broken")
    (broken / "expected.json").write_text("{")
    assert find_cases(tmp_path, "1-checker") == [broken]


@pytest.mark.parametrize("word", ["4", "4-salts"])
def test_a_part_is_named_by_number_or_in_full(word):
    assert part_named(word) == "4-salts"


@pytest.mark.parametrize("word", ["8", "salts", ""])
def test_an_unknown_part_is_refused_with_the_parts_there_are(word):
    with pytest.raises(pytest.Collector.CollectError, match="there are 1-checker, 2-eviction"):
        part_named(word)


def test_a_folder_without_cases_is_refused(tmp_path):
    with pytest.raises(pytest.Collector.CollectError, match="0 cases"):
        find_cases(tmp_path)
    with pytest.raises(pytest.Collector.CollectError, match="no such folder"):
        find_cases(tmp_path / "absent")


def test_a_part_without_a_case_is_refused(tmp_path):
    write_case(tmp_path / "a")
    with pytest.raises(pytest.Collector.CollectError, match="1 cases, none of part 2-eviction"):
        find_cases(tmp_path, "2-eviction")


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b"NaN"])
def test_a_file_that_cannot_be_read_as_json_is_named(tmp_path, content):
    folder = write_case(tmp_path / "bad")
    (folder / "input.json").write_bytes(content)
    with pytest.raises(MalformedCase, match=r"bad/input\.json: "):
        load_case(folder)


@pytest.mark.parametrize(
    ("given", "expected", "message"),
    [
        (INPUT | {"extra": 1}, EXPECTED, "'extra' does not occur"),
        (INPUT, EXPECTED | {"equal_pairs": "0"}, "equal_pairs"),
        (INPUT, EXPECTED | {"part": "9-none"}, "part '9-none' has no kind 'namespaces'"),
        (INPUT, EXPECTED | {"kind": "geometry"}, "part '4-salts' has no kind 'geometry'"),
        (INPUT | {"kind": "salt-format"}, EXPECTED, "input.json is of kind 'salt-format'"),
        ([], EXPECTED, "not a JSON object"),
    ],
)
def test_a_malformed_case_is_an_error(tmp_path, given, expected, message):
    with pytest.raises(MalformedCase, match=message):
        load_case(write_case(tmp_path / "bad", given, expected))


@pytest.mark.parametrize("name", ["absent.jinja", "../outside.jinja"])
def test_a_file_that_the_case_names_has_to_lie_in_its_folder(tmp_path, name):
    (tmp_path / "outside.jinja").touch()
    given = {
        "kind": "render-parity",
        "template_file": name,
        "template_kwargs": {},
        "add_generation_prompt": True,
        "messages": [],
        "tools": [],
    }
    expected = {
        "case": "x",
        "part": "1-checker",
        "kind": "render-parity",
        "cause": "none",
        "reference_text": "",
        "variants": {},
        "notes": {},
    }
    with pytest.raises(MalformedCase, match="not in the folder"):
        load_case(write_case(tmp_path / "bad", given, expected))


def test_a_broken_line_of_a_trace_is_named(tmp_path):
    given = {"kind": "hit-rate-definitions", "trace_file": "t.jsonl", "block_size": 4}
    expected = {"case": "x", "part": "7-simulator", "kind": "hit-rate-definitions", "notes": {}}
    rates = ("blocks_all", "blocks_full_only", "tokens_any_block", "tokens_engine_rule")
    folder = write_case(
        tmp_path / "bad",
        given | {"capacity": "unlimited"},
        expected | {"rates": dict.fromkeys([*rates, "mean_of_requests"], 0)},
    )
    row = {"timestamp": 0, "input_length": 4, "output_length": 1, "hash_ids": [1]}
    (folder / "t.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(row | {'hash_ids': 1})}\n{{")
    with pytest.raises(MalformedCase) as error:
        load_case(folder)
    assert "t.jsonl:2.hash_ids: 1 is not a list" in str(error.value)
    assert "t.jsonl:3: " in str(error.value)
    assert "t.jsonl:1" not in str(error.value)


def test_keys_that_belong_to_the_question_are_shown_without_their_values():
    rules = Rules(asked=("pairs.*.id",), asked_keys=("pairs.*.reuse.paged",))
    answer = {"pairs": [{"id": "a", "reuse": {"paged": {"4": 8}}}, {"id": "b", "reuse": None}]}
    assert rules.asked_in(answer) == {
        "pairs": [{"id": "a", "reuse": {"paged": {"4": None}}}, {"id": "b"}]
    }


def test_the_answer_function_sees_what_is_asked_and_no_answer():
    case, answer = load_case(Path(__file__).parent / "data" / "K18-tojson-renderer")
    assert case.asked["variants"].keys() == answer["variants"].keys()
    assert {tuple(variant) for variant in case.asked["variants"].values()} == {("text",)}
    assert case.asked.keys() == {"variants"}
