"""Find the cases of a folder and load one; a malformed case is an error, never a skip."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.cases.rules import rules_of
from tests.cases.schema import COMMON_FIELDS, Schema, read_schema, violations

INPUT, EXPECTED = "input.json", "expected.json"


class MalformedCase(Exception):
    """A case folder does not follow the schema of `data/README.md`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One report as input and right answer. Answer functions see `input`, files and `asked`."""

    name: str
    part: str
    kind: str
    folder: Path
    input: dict[str, Any]
    asked: dict[str, Any]
    """What the answer has to be about where the question stands in expected.json: ids of
    pairs, lines of checkpoints, groups to test. None of the values to be found."""

    def read_text(self, file_name: str) -> str:
        """Return the file as it is: templates care about every line break."""
        return (self.folder / file_name).read_bytes().decode()

    def read_lines(self, file_name: str) -> list[Any]:
        """Return the parsed lines of a `.jsonl` file of the case."""
        return [json.loads(line) for line in self.read_text(file_name).splitlines() if line]


def find_cases(folder: Path, part: str | None = None) -> list[Path]:
    """Return the case folders in `folder` (or itself), sorted; of one part where given.

    A case whose part cannot be read belongs to every part: it has to fail, not to vanish.
    """
    if not folder.is_dir():
        raise pytest.Collector.CollectError(
            f"--cases {folder}: no such folder; give a folder of cases"
        )
    candidates = [folder, *sorted(folder.iterdir())]
    found = [path for path in candidates if _is_case(path)]
    wanted = [path for path in found if part is None or _part_of(path) in {part, None}]
    if not wanted:
        raise pytest.Collector.CollectError(
            f"--cases {folder}: {len(found)} cases, none of part {part or 'any'}; "
            f"a case is a folder with {INPUT} and {EXPECTED}"
        )
    return wanted


def part_named(word: str, schema: Schema | None = None) -> str:
    """Return the part's full name for `4` or `4-salts`."""
    parts = (schema or read_schema()).kinds_of_part
    matches = [part for part in parts if word in {part, part.split("-")[0]}]
    if not matches:
        raise pytest.Collector.CollectError(
            f"--part {word}: no such part; there are {', '.join(parts)}"
        )
    return matches[0]


def load_case(folder: Path, schema: Schema | None = None) -> tuple[Case, dict[str, Any]]:
    """Return the case and its right answer, both checked against the schema."""
    schema = schema or read_schema()
    given, expected = (_read_object(folder / name) for name in (INPUT, EXPECTED))
    part, kind = expected.get("part"), expected.get("kind")
    if kind not in schema.kinds_of_part.get(part, ()):
        _refuse(folder, [f"{EXPECTED}: part {part!r} has no kind {kind!r}"])
    problems = list(_problems(folder, given, expected, schema))
    if problems:
        _refuse(folder, problems)
    answer = {key: value for key, value in expected.items() if key not in COMMON_FIELDS}
    asked = rules_of(kind).asked_in(answer)
    return Case(folder.name, part, kind, folder, given, asked), answer


def _problems(
    folder: Path, given: dict[str, Any], expected: dict[str, Any], schema: Schema
) -> Iterator[str]:
    kind = expected["kind"]
    if given.get("kind") != kind:
        yield f"{INPUT} is of kind {given.get('kind')!r}, {EXPECTED} of {kind!r}"
        return
    yield from violations(given, schema.shapes[kind, INPUT], where=INPUT)
    yield from violations(expected, schema.expected_shape(kind), where=EXPECTED, nulls=True)
    for field, file_name in _named_files(given):
        if Path(file_name).name != file_name or not (folder / file_name).is_file():
            yield f"{INPUT} names the file {file_name!r} in {field!r}, which is not in the folder"
        elif shape := schema.shapes.get((kind, f"{field.removesuffix('_file')}.jsonl")):
            yield from _line_problems(folder / file_name, shape)


def _line_problems(path: Path, shape: Any) -> Iterator[str]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"{path.name}:{number}"
        try:
            yield from violations(_parse(line), shape, where=where)
        except ValueError as error:
            yield f"{where}: {error}"


def _named_files(value: Any) -> Iterator[tuple[str, str]]:
    """Yield `(field, file name)` for fields ending in `_file`, at any depth, and `files`."""
    match value:
        case dict():
            for key, inner in value.items():
                if key.endswith("_file") and isinstance(inner, str):
                    yield key, inner
                elif key == "files" and isinstance(inner, list):
                    yield from ((key, name) for name in inner if isinstance(name, str))
                else:
                    yield from _named_files(inner)
        case list():
            for inner in value:
                yield from _named_files(inner)


def _is_case(path: Path) -> bool:
    return path.is_dir() and any((path / name).exists() for name in (INPUT, EXPECTED))


def _part_of(folder: Path) -> str | None:
    try:
        return _read_object(folder / EXPECTED).get("part")
    except MalformedCase:
        return None


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = _parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MalformedCase(f"{path.parent.name}/{path.name}: {error}") from error
    if not isinstance(value, dict):
        raise MalformedCase(f"{path.parent.name}/{path.name}: not a JSON object")
    return value


def _parse(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _refuse(folder: Path, problems: list[str]) -> NoReturn:
    raise MalformedCase("\n".join([f"{folder.name} does not follow the schema:", *problems]))
