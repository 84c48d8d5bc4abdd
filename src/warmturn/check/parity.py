"""Compares a prompt rendered elsewhere with the same prompt rendered here."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warmturn.check.compare import shared_chars
from warmturn.check.message_keys import same_json
from warmturn.check.names import UNKNOWN

__all__ = ["Parity", "compare_renderings"]

_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Parity:
    """How another renderer's text stands to the reference."""

    is_equal: bool
    shared_chars: int
    cause: str
    """`renderer.tojson_mismatch` where the texts differ only in how they spell the same JSON."""


def compare_renderings(reference: str, other: str) -> Parity:
    """Compare two renderings of one prompt. `none`, `renderer.tojson_mismatch` or `unknown`."""
    if reference == other:
        return Parity(is_equal=True, shared_chars=len(reference), cause="none")
    is_json = _without_json(reference, other)
    cause = "renderer.tojson_mismatch" if is_json else UNKNOWN
    return Parity(is_equal=False, shared_chars=shared_chars(reference, other), cause=cause)


def _without_json(left: str, right: str) -> bool:
    """Say whether the texts are equal when JSON values at the same place are compared parsed."""
    at_left = at_right = 0
    while True:
        step = shared_chars(left[at_left:], right[at_right:])
        end_left, end_right = at_left + step, at_right + step
        if end_left == len(left) and end_right == len(right):
            return True
        found = _equal_values(left, right, at_left, at_right, step)
        if found is None:
            return False
        at_left, at_right = found


def _equal_values(
    left: str, right: str, at_left: int, at_right: int, step: int
) -> tuple[int, int] | None:
    """Return the ends of the outermost equal JSON values that the difference lies in."""
    for offset in range(step + 1):
        values = [
            list(_values_at(text, start + offset))
            for text, start in ((left, at_left), (right, at_right))
        ]
        for value, end in values[0]:
            for other, other_end in values[1]:
                covers = end > at_left + step or other_end > at_right + step
                if covers and same_json(value, other):
                    return end, other_end
    return None


def _values_at(text: str, start: int) -> Iterator[tuple[Any, int]]:
    """Yield the JSON value that begins here; a string that holds JSON also as what it holds."""
    if text[start : start + 1] not in {"{", "[", '"'}:
        return
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return
    yield value, end
    if isinstance(value, str):
        try:
            yield json.loads(value), end
        except (ValueError, RecursionError):
            return
