"""Kinds without an example in our own folder, on inputs of the same form."""

from pathlib import Path
from typing import Any

from tests.cases.discovery import Case
from tests.cases.part_4_salts import namespaces, salt_format


def case(kind: str, **given: Any) -> Case:
    return Case("x", "4-salts", kind, Path(), {"kind": kind, **given}, {})


def space(
    extra_key: str | None = None, cache_salt: str | None = None, lora: str | None = None
) -> dict[str, str | None]:
    return {"extra_key": extra_key, "cache_salt": cache_salt, "lora": lora}


def test_name_spaces_that_read_alike_when_glued_are_distinct():
    spaces = [
        space("a", "bc"),
        space("ab", "c"),
        space("abc"),
        space(cache_salt="abc"),
        space(lora="abc"),
        space(None, "a", "bc"),
        space(),
    ]
    rows = [{"id": str(index), **row} for index, row in enumerate(spaces)]
    same = [[space("a", "b", "c"), space("a", "b", "c")], [space("a"), space(cache_salt="a")]]
    answer = namespaces(case("namespaces", namespaces=rows, same=same))
    assert answer == {"distinct_namespaces": 7, "equal_pairs": 1}


def test_a_salt_of_a_wrong_form_or_type_is_not_valid():
    values = {"plain": "tenant-7", "empty": "", "line": "a\nb", "number": 7, "absent": None}
    samples = [{"id": name, "value": value} for name, value in values.items()]
    answer = salt_format(case("salt-format", samples=samples, tenants=[]))
    assert answer["valid"] == dict.fromkeys(values, False) | {"plain": True}
