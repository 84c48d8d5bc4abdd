"""Values out of foreign JSON: right type or None, and a refusal where a wrong value would mislead.

What decides the answer (messages, tools, token ids) is checked and refused with
`InvalidInput`; what only decorates it (ids, times, counts) is None when it has another type.
"""

from array import array
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from warmturn.errors import InvalidInput
from warmturn.formats.body import JsonObject

__all__ = ["count", "mapping", "messages", "seconds", "text", "token_ids", "tools", "written"]

_UNITS_PER_S = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""Epoch times above the first number are in ns, µs, ms: 1e11 s is the year 5138."""


def text(record: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of the named fields that is text and not empty."""
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def written(record: Mapping[str, Any], name: str) -> str | None:
    """Return a field that is text, empty or not: a reply may be empty, which is not absent."""
    value = record.get(name)
    return value if isinstance(value, str) else None


def count(record: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of the named fields that is a whole number of at least 0."""
    for name in names:
        value = record.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def mapping(record: Mapping[str, Any], *names: str) -> JsonObject | None:
    """Return the first of the named fields that is an object."""
    for name in names:
        value = record.get(name)
        if isinstance(value, dict):
            return value
    return None


def seconds(record: Mapping[str, Any], *names: str) -> float | None:
    """Return the first of the named fields that is a time, in seconds since the epoch.

    Numbers in milli-, micro- or nanoseconds are known by their size. ISO 8601 text without
    an offset counts as UTC.
    """
    for name in names:
        found = _seconds(record.get(name))
        if found is not None:
            return found
    return None


def token_ids(value: object, *, name: str) -> tuple[int, ...] | None:
    """Return a flat list of token ids, None for null. Raises `InvalidInput` otherwise."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"{name} is {_kind(value)}, not a list of token ids")
    try:
        ids = tuple(array("i", value))
    except (TypeError, OverflowError) as error:
        raise InvalidInput(f"{name} is not one flat list of 32-bit token ids") from error
    if ids and min(ids) < 0:
        raise InvalidInput(f"{name} holds {min(ids)}; token ids are not negative")
    return ids


def messages(value: object, *, name: str = "messages") -> tuple[JsonObject, ...]:
    """Return a message list. Raises `InvalidInput` naming the message that is none."""
    if not isinstance(value, list):
        raise InvalidInput(f"{name} is {_kind(value)}, not a list of messages")
    for at, message in enumerate(value):
        if not _is_plain(message):
            _check_message(message, f"{name}[{at}]")
    return tuple(value)


def tools(value: object) -> tuple[JsonObject, ...] | None:
    """Return a tool list, None for null. Raises `InvalidInput` for anything else."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise InvalidInput("tools is not a list of objects")
    return tuple(value)


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        return _iso_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    per_s = next((per_s for least, per_s in _UNITS_PER_S if value >= least), 1.0)
    try:
        return value / per_s
    except OverflowError:  # an integer beyond what a float holds is no time
        return None


def _iso_seconds(value: str) -> float | None:
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _is_plain(message: object) -> bool:
    """Say at a glance that nothing can be wrong: a role and a text, which most messages are."""
    return (
        type(message) is dict
        and type(message.get("role")) is str
        and type(message.get("content")) is str
        and "tool_calls" not in message
    )


def _check_message(message: object, name: str) -> None:
    if not isinstance(message, dict):
        raise InvalidInput(f"{name} is {_kind(message)}, not an object")
    if not isinstance(message.get("role"), str):
        raise InvalidInput(f"{name} has no role")
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str | list | None) or not all(isinstance(p, dict) for p in parts):
        raise InvalidInput(f"{name}.content is neither text nor a list of parts")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise InvalidInput(f"{name}.tool_calls is not a list of objects")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
