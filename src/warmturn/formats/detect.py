"""The log formats there are, and which of them a log is in."""

from collections.abc import Iterable
from typing import Any

import msgspec

from warmturn.errors import InvalidInput, InvalidRequest
from warmturn.formats.anthropic import ANTHROPIC
from warmturn.formats.body import JsonObject, check_depth, is_deep
from warmturn.formats.claude_code import CLAUDE_CODE
from warmturn.formats.codex import CODEX
from warmturn.formats.format import Format
from warmturn.formats.litellm import LITELLM
from warmturn.formats.llamacpp import LLAMACPP
from warmturn.formats.openai_log import OPENAI
from warmturn.formats.sglang import SGLANG
from warmturn.formats.sharegpt import SHAREGPT
from warmturn.formats.vllm_log import VLLM_LOG
from warmturn.formats.vllm_response import VLLM

__all__ = ["FORMATS", "detect_format", "format_named", "parsed"]

FORMATS: dict[str, Format] = {
    # The narrow ones first: many records are OpenAI's and something more.
    log_format.name: log_format
    for log_format in (
        CLAUDE_CODE,
        CODEX,
        LITELLM,
        SHAREGPT,
        SGLANG,
        VLLM,
        LLAMACPP,
        ANTHROPIC,
        OPENAI,
        VLLM_LOG,
    )
}
"""Every format by name, in the order in which they are tried."""


def detect_format(lines: Iterable[bytes]) -> str:
    """Return the name of the format of the first line that one recognises.

    `lines` may as well be the objects of a JSON array. Lines that none recognises (broken
    ones, titles, other messages of a server) are passed over. Raises `InvalidInput`.
    """
    num_lines = 0
    for line in lines:
        num_lines += 1
        found = _recognised(line)
        if found is not None:
            return found.name
    raise InvalidInput(
        f"none of the first {num_lines} lines is of a known format ({_names()}); "
        'name it with --format, or convert the log to {"messages": […], "model": …} lines'
    )


def format_named(name: str) -> Format:
    """Return a format by its name. Raises `InvalidInput` listing the names."""
    if name not in FORMATS:
        raise InvalidInput(f"there is no log format '{name}'; the formats are {_names()}")
    return FORMATS[name]


def parsed(data: bytes) -> JsonObject:
    """Return the JSON object in `data`. Raises `InvalidInput` saying what is there instead."""
    try:
        value: Any = msgspec.json.decode(data)
    except RecursionError as error:
        raise InvalidInput("the record is nested too deeply to read") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("not a JSON object")
    if is_deep(data):
        _refuse_deep(value)
    return value


def _recognised(line: bytes) -> Format | None:
    try:
        record = parsed(line)
    except InvalidInput:
        text = line.decode(errors="replace")
        return next((f for f in FORMATS.values() if f.is_text and f.recognises(text)), None)
    return next((f for f in FORMATS.values() if not f.is_text and f.recognises(record)), None)


def _refuse_deep(value: JsonObject) -> None:
    try:
        check_depth(value, param="the record")
    except InvalidRequest as error:
        raise InvalidInput(str(error)) from error


def _names() -> str:
    return ", ".join(FORMATS)
