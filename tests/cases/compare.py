"""Compare the product's answer with the right one: every place that differs, with its path."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.cases.rules import (
    ABSOLUTE,
    ABSOLUTE_OF_FIELD,
    CHARS_OF_FIELD,
    FOR_PEOPLE,
    RELATIVE_ABOVE_1,
    Path,
    Rules,
    matches,
    rules_of,
)
from tests.cases.schema import Shape, field_shapes, read_schema, type_word


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where the answer is wrong. The text is what a person reads in the test report."""

    path: str
    expected: Any
    got: Any
    within: str = ""

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected!r}{self.within}, got {self.got!r}"


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


def differences(kind: str, expected: dict[str, Any], got: dict[str, Any]) -> list[Difference]:
    """Return what is wrong in `got`; empty when every checked field is right."""
    return _Comparison(rules_of(kind), expected).run(
        expected, got, read_schema().answer_shape(kind)
    )


class _Comparison:
    """One walk along the schema's shape, so that `int` is exact and `num` has a tolerance."""

    def __init__(self, rules: Rules, expected: dict[str, Any]) -> None:
        self._rules = rules
        self._relative: float | None = (
            expected[rules.tolerance_from] if rules.tolerance_from else None
        )

    def run(self, expected: Any, got: Any, shape: Shape) -> list[Difference]:
        return list(self._walk(expected, got, shape, ()))

    def _walk(self, expected: Any, got: Any, shape: Shape, path: Path) -> Iterator[Difference]:
        if self._is_unchecked(expected, path):
            return
        if expected is None or got is None or got is MISSING:
            if expected is not got:
                yield Difference(_written(path), expected, got)
            return
        match shape:
            case str():
                yield from self._scalar(expected, got, type_word(shape), path)
            case [item]:
                yield from self._list(expected, got, item, path)
            case dict():
                yield from self._object(expected, got, shape, path)

    def _is_unchecked(self, expected: Any, path: Path) -> bool:
        field = path[-1] if path else None
        if field in FOR_PEOPLE or (len(path) == 1 and field == self._rules.tolerance_from):
            return True
        return expected is None and not matches(path, self._rules.null_is_an_answer)

    def _needs_append_only(self, path: Path, record: dict[str, Any]) -> bool:
        is_listed = matches(path, self._rules.null_if_append_only)
        return is_listed and record.get("verdict") != "append-only"

    def _list(self, expected: Any, got: Any, item: Shape, path: Path) -> Iterator[Difference]:
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            yield Difference(_written(path), expected, got)
            return
        if matches(path, self._rules.unordered):
            expected, got = sorted(expected), sorted(got)
        for index, (want, have) in enumerate(zip(expected, got, strict=True)):
            yield from self._walk(want, have, item, (*path, index))

    def _object(self, expected: Any, got: Any, shape: Shape, path: Path) -> Iterator[Difference]:
        if not isinstance(got, dict):
            yield Difference(_written(path), expected, got)
            return
        shapes = field_shapes(shape)
        for key, want in expected.items():
            inner = shapes["*"] if "*" in shapes else shapes[key]
            at = (*path, key)
            if want is None and self._needs_append_only(at, expected):
                continue
            yield from self._walk(want, got.get(key, MISSING), inner, at)
        if matches(path, self._rules.whole_maps):
            for key in got.keys() - expected.keys():
                yield Difference(_written((*path, key)), MISSING, got[key])

    def _scalar(self, expected: Any, got: Any, word: str, path: Path) -> Iterator[Difference]:
        if word == "any":
            right, within = _is_equal_json(expected, got), ""
        elif word == "num":
            right, within = self._is_close(expected, got, path)
        elif word == "int" and not self._rules.exact_chars and path[-1] in CHARS_OF_FIELD:
            slack = CHARS_OF_FIELD[str(path[-1])]
            right = type(got) is int and abs(got - expected) <= slack
            within = f" (within {slack})"
        else:
            right, within = type(got) is type(expected) and got == expected, ""
        if not right:
            yield Difference(_written(path), expected, got, within)

    def _is_close(self, expected: float, got: Any, path: Path) -> tuple[bool, str]:
        if isinstance(got, bool) or not isinstance(got, int | float):
            return False, ""
        slack = self._slack(expected, path)  # NaN and infinity are within no slack
        return abs(got - expected) <= slack, f" (within {slack:g})"

    def _slack(self, expected: float, path: Path) -> float:
        if self._relative is not None:
            return self._relative * abs(expected)
        absolute = ABSOLUTE_OF_FIELD.get(str(path[-1]), ABSOLUTE)
        if abs(expected) <= 1 or matches(path, self._rules.absolute_only):
            return absolute
        return max(absolute, RELATIVE_ABOVE_1 * abs(expected))


def _is_equal_json(expected: Any, got: Any) -> bool:
    """Equal as JSON: unlike Python, 1, 1.0 and true are three values."""
    match expected:
        case dict():
            return (
                isinstance(got, dict)
                and expected.keys() == got.keys()
                and all(_is_equal_json(expected[key], got[key]) for key in expected)
            )
        case list():
            return (
                isinstance(got, list | tuple)
                and len(expected) == len(got)
                and all(map(_is_equal_json, expected, got))
            )
        case _:
            return type(expected) is type(got) and bool(expected == got)


def _written(path: Path) -> str:
    """`runs[0].pairs[2].verdict`; a key that is no plain word stands in brackets, quoted."""
    text = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{step!r}]"
    return text or "answer"
