"""ShareGPT conversations: one object is one conversation, one assistant turn one request."""

from collections.abc import Iterator
from typing import Any

import msgspec

from warmturn.errors import InvalidInput
from warmturn.formats import fields
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, joined, one_by_one
from warmturn.formats.record import LoggedRequest

__all__ = ["SHAREGPT"]

_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}


class _Call(msgspec.Struct):
    """A `function_call` turn: JSON text. `arguments` stays as it is written there."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def _recognises(record: JsonObject) -> bool:
    turns = record.get("conversations", record.get("conversation"))
    return isinstance(turns, list) and any(isinstance(t, dict) and "from" in t for t in turns)


def _convert(entry: Entry) -> Iterator[LoggedRequest]:
    record = entry.value
    turns = record.get("conversations", record.get("conversation"))
    if not isinstance(turns, list):
        raise InvalidInput("this record has no list named conversations")
    # A record without an id is still a conversation of its own.
    conversation = fields.text(record, "id") or f"{entry.source}:{entry.line}"
    system = fields.text(record, "system")
    messages: list[JsonObject] = [{"role": "system", "content": system}] if system else []
    common = {"conversation_id": conversation, "tools": _tools(record.get("tools"))}
    messages += [_message(turn, at) for at, turn in enumerate(turns)]
    for at, message in enumerate(messages):
        if message["role"] == "assistant" and at > 0:
            own = {"messages": tuple(messages[:at]), "reply": message}
            yield joined(entry, {"request_id": f"{conversation}/{at}"}, common, own)


def _message(turn: object, at: int) -> JsonObject:
    if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
        raise InvalidInput(f"conversations[{at}] has no text named value")
    sender = turn.get("from")
    role = _ROLES.get(sender) if isinstance(sender, str) else None
    if role is None:
        raise InvalidInput(f"conversations[{at}] is from {sender!r}; known: {', '.join(_ROLES)}")
    if sender == "function_call":
        return {"role": role, "content": None, "tool_calls": _tool_calls(turn["value"], at)}
    return {"role": role, "content": turn["value"]}


def _tool_calls(value: str, at: int) -> list[JsonObject]:
    try:
        calls = msgspec.json.decode(value, type=_Call | list[_Call])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"conversations[{at}] is no function call: {error}") from error
    return [
        {"type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
        for call in (calls if isinstance(calls, list) else [calls])
    ]


def _arguments(call: _Call) -> str:
    raw = bytes(call.arguments)
    return msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()


def _tools(value: Any) -> tuple[JsonObject, ...] | None:
    """Tools come as a list, or as its JSON text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value) if value.strip() else None
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidInput(f"tools is no JSON: {error}") from error
    tools = fields.tools(value)
    if tools is None:
        return None
    return tuple(t if "function" in t else {"type": "function", "function": t} for t in tools)


SHAREGPT = Format(
    name="sharegpt",
    about="ShareGPT conversations, one request per assistant turn",
    level="full",
    recognises=_recognises,
    read=one_by_one(_convert),
)
