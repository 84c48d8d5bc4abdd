"""A JSON body to a typed value: strict about types, and every refusal names its field."""

import re
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from warmturn.errors import InvalidRequest

__all__ = ["MAX_DEPTH", "JsonObject", "check_depth", "is_deep", "read_json", "typed"]

JsonObject: TypeAlias = dict[str, Any]

MAX_DEPTH = 32
"""Nesting allowed in what reaches the template. Tool schemas in the wild stay far below;
templates walk these values recursively."""

T = TypeVar("T")


def read_json(body: bytes) -> JsonObject:
    """Return the one JSON object in `body`; of two equal keys the later one counts.

    Raises `InvalidRequest` for anything else: NaN and infinities, trailing text, bytes
    that are not UTF-8, half surrogate pairs, nesting too deep to parse.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidRequest("the body is nested too deeply to read; flatten it") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body is a JSON {_kind(value)}; send an object of fields")
    return cast("JsonObject", value)


def typed(value: object, kind: type[T], *, under: str = "") -> T:
    """Return `value` as `kind`, a dataclass or a container of them.

    `under` names the field that holds `value`, and opens the path in a refusal.
    Fields that `kind` does not have are ignored.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, path = _read_refusal(str(error))
        param = f"{under}{path}".removeprefix(".") or None
        raise InvalidRequest(f"{param or 'the body'}: {what}", param=param) from error


_CONTAINERS = frozenset({dict, list})


def check_depth(value: object, *, param: str) -> None:
    """Raise `InvalidRequest` if `value` nests containers more than `MAX_DEPTH` deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for outer in level:
            items = outer.values() if type(outer) is dict else cast("list[object]", outer)
            inner += [item for item in items if type(item) in _CONTAINERS]
        if not inner:
            return
        level = inner
    raise InvalidRequest(f"{param} is nested more than {MAX_DEPTH} deep; flatten it", param=param)


_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_ONE_KIND = bytes.maketrans(b"[]", b"{}")


def is_deep(data: bytes) -> bool:
    """Say whether valid JSON nests more than `MAX_DEPTH` deep, without a walk through its values."""
    # Fewer brackets than levels cannot nest too deep.
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return False
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(data.translate(_ONE_KIND, _NO_BRACKETS).split(b'"')[::2])
    for _ in range(MAX_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"{}", b"")  # all that are innermost, and no others
    return bool(brackets)


def _read_refusal(message: str) -> tuple[str, str]:
    """Split msgspec's message, ``what - at `$.path[0]` ``, into what and `.path[0]`."""
    what, _, path = message.partition(" - at `$")
    path = path.removesuffix("`")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", what)
    if missing:
        return "is missing; it is required", f"{path}.{missing[1]}"
    return what[:1].lower() + what[1:], path


def _kind(value: object) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
