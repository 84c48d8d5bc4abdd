"""A TOML file to a `Config`, with errors that name the key and what it takes."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from warmturn.errors import InvalidInput
from warmturn.gateway.config import Config

__all__ = ["accepted_values", "part_of", "read_config", "table_of"]

Part = TypeVar("Part")

_AT = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")


def read_config(path: Path) -> Config:
    """Read a configuration file. Relative paths in it are relative to its folder.

    Raises `InvalidInput` that names the file, the key path and the accepted values.
    """
    try:
        text = path.read_bytes().decode()
        table = tomllib.loads(text)
    except OSError as error:
        raise InvalidInput(f"--config {path}: {error.strerror}; name a TOML file") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"--config {path} is not TOML: {error}") from error
    try:
        return part_of(Config, table, base=path.parent)
    except InvalidInput as error:
        raise InvalidInput(f"--config {path}: {error}") from error


def part_of(cls: type[Part], table: Mapping[str, Any], *, base: Path = Path()) -> Part:
    """Return `table` as `cls`. Raises `InvalidInput` naming the key path and accepted values."""
    for key_path, unknown, known in _unknown_keys(cls, table):
        raise InvalidInput(
            f"{key_path}{unknown} is no key of the configuration; there are {', '.join(known)}"
        )

    def file_at(kind: type, value: Any) -> Any:
        if kind is Path and isinstance(value, str):
            return base / value
        raise NotImplementedError(kind)

    try:
        return msgspec.convert(table, cls, dec_hook=file_at)
    except msgspec.ValidationError as error:
        raise InvalidInput(_explained(cls, str(error))) from error


def table_of(cls: type, key_path: str) -> Any:
    """Return the declared type at a key path such as `replicas[0].weight`."""
    kind: Any = cls
    for key in re.findall(r"[^.\[\]]+", key_path.replace("[...]", "")):
        if not key.isdigit():
            kind = get_type_hints(_part_in(kind), include_extras=True)[key]
    return kind


def accepted_values(kind: Any) -> str:
    """Return in words what a key of this type takes."""
    metas = [one for one in getattr(kind, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
    if metas:
        bounds = {"above": metas[0].gt, "at least": metas[0].ge, "at most": metas[0].le}
        words = [f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None]
        words += [f"beginning with {metas[0].pattern[1:]}"] if metas[0].pattern else []
        least, most = metas[0].min_length, metas[0].max_length
        words += [f"of {least} to {most} characters"] if least and most else []
        return " ".join([accepted_values(kind.__origin__), " and ".join(words)]).strip()
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(accepted_values(one) for one in args if one is not type(None))
    if origin is Literal:
        return "one of " + ", ".join(args)
    if origin is tuple:
        return "a list of " + ("tables" if is_dataclass(args[0]) else "texts")
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(one.value for one in kind)
    return "a table" if is_dataclass(kind) else _WORDS[kind]


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}


def _part_in(kind: Any) -> type:
    """Return the part inside `Part | None` or `tuple[Part, ...]`."""
    if is_dataclass(kind):
        return kind  # type: ignore[return-value]
    return next(one for one in map(_part_in, get_args(kind)) if is_dataclass(one))


def _unknown_keys(
    cls: type, table: Mapping[str, Any], at: str = ""
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield path, key and the known keys of every key that no part has."""
    known = [one.name for one in fields(cls)]
    kinds = get_type_hints(cls)
    for key, value in table.items():
        if key not in known:
            yield at, key, known
            continue
        parts = [one for one in (kinds[key], *get_args(kinds[key])) if is_dataclass(one)]
        if parts and isinstance(value, Mapping):
            yield from _unknown_keys(parts[0], value, f"{at}{key}.")  # type: ignore[arg-type]
        elif parts and isinstance(value, list):
            for number, entry in enumerate(value):
                if isinstance(entry, Mapping):
                    place = f"{at}{key}[{number}]."
                    yield from _unknown_keys(parts[0], entry, place)  # type: ignore[arg-type]


def _explained(cls: type, message: str) -> str:
    """Turn msgspec's words into ours: the path first, then what is wrong and what it takes."""
    found = _AT.search(message)
    path = found["path"] if found else ""
    problem = _AT.sub("", message)
    if problem.startswith("Object missing required field"):
        missing = re.findall("`(.*?)`", problem)[0]
        return f"{path}{'.' if path else ''}{missing} is missing; it cannot be left out"
    takes = accepted_values(table_of(cls, path)) if path else "tables"
    return f"{path}: {problem[0].lower()}{problem[1:]}; it takes {takes}"
