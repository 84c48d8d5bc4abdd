"""What a case may look like: the schema blocks of `data/README.md`, read and enforced.

A shape is JSON with types as values, as that README writes it: `"int"`, `"num?"`,
`"=load|recompute"`, `["str"]`, `{"*": "bool"}`, `{"id": "str", "ts?": "num"}`.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SCHEMA_FILE = Path(__file__).parent / "data" / "README.md"

Shape = Any
"""A type word, a list of one shape, or an object of shapes."""

COMMON_FIELDS = ("case", "part", "kind", "notes")
"""Fields of every expected.json that are no answer."""

_BLOCK = re.compile(
    r"^```json (?P<kind>\S+) (?P<file>\S+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PART_ROW = re.compile(r"^\| `(?P<part>\d+-\w+)` \|[^|]*\| (?P<kinds>[^|]+) \|$", re.MULTILINE)
_IS_TYPE = {
    "str": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "num": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "any": lambda _value: True,
}


@dataclass(frozen=True, slots=True)
class Schema:
    """Kinds by part, and the shape of each file by `(kind, file name)`."""

    kinds_of_part: dict[str, tuple[str, ...]]
    shapes: dict[tuple[str, str], Shape]

    def answer_shape(self, kind: str) -> Shape:
        """Return the shape of the answer fields of `expected.json`."""
        return self.shapes[kind, "expected.json"]

    def expected_shape(self, kind: str) -> Shape:
        return self.shapes["*", "expected.json"] | self.answer_shape(kind)


@cache
def read_schema(path: Path = SCHEMA_FILE) -> Schema:
    text = path.read_text(encoding="utf-8")
    return Schema(
        kinds_of_part={
            row["part"]: tuple(row["kinds"].split(", ")) for row in _PART_ROW.finditer(text)
        },
        shapes={
            (block["kind"], block["file"]): json.loads(block["body"])
            for block in _BLOCK.finditer(text)
        },
    )


def violations(value: Any, shape: Shape, *, where: str, nulls: bool = False) -> Iterator[str]:
    """Say at which places `value` does not have the shape; nothing when it has.

    With `nulls`, null stands everywhere: in an answer it means "not checked".
    """
    if value is None and nulls:
        return
    match shape:
        case str():
            if not _is_scalar(value, shape):
                yield f"{where}: {_short(value)} is not {shape!r}"
        case [item]:
            yield from _list_violations(value, item, where=where, nulls=nulls)
        case {"*": item}:
            yield from _map_violations(value, item, where=where, nulls=nulls)
        case dict():
            yield from _record_violations(value, shape, where=where, nulls=nulls)
        case _:
            raise TypeError(f"the schema itself is broken at {where}: {shape!r}")


def type_word(shape: str) -> str:
    """Return `int` for `int?`: the word without the mark of absence."""
    return shape.removesuffix("?")


def field_shapes(record: dict[str, Shape]) -> dict[str, Shape]:
    """Return the shapes of a record by plain field name, without marks of absence."""
    return {key.removesuffix("?"): shape for key, shape in record.items()}


def _is_scalar(value: Any, shape: str) -> bool:
    if value is None:
        return shape.endswith("?") or shape == "any"
    word = type_word(shape)
    if word.startswith("="):
        return value in word[1:].split("|")
    return _IS_TYPE[word](value)


def _list_violations(value: Any, item: Shape, *, where: str, nulls: bool) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{where}: {_short(value)} is not a list"
        return
    for index, element in enumerate(value):
        yield from violations(element, item, where=f"{where}[{index}]", nulls=nulls)


def _map_violations(value: Any, item: Shape, *, where: str, nulls: bool) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {_short(value)} is not an object"
        return
    for key, element in value.items():
        yield from violations(element, item, where=f"{where}.{key}", nulls=nulls)


def _record_violations(
    value: Any, shape: dict[str, Shape], *, where: str, nulls: bool
) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {_short(value)} is not an object"
        return
    shapes = field_shapes(shape)
    for key in value.keys() - shapes.keys():
        yield f"{where}: the field {key!r} does not occur in this kind"
    for key in shape:
        if not key.endswith("?") and key not in value:
            yield f"{where}: the field {key!r} is missing"
    for key in value.keys() & shapes.keys():
        yield from violations(value[key], shapes[key], where=f"{where}.{key}", nulls=nulls)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
