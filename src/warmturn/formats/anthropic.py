"""Anthropic Messages requests, alone or with their responses, converted to OpenAI form.

Texts are kept as they are. `tool_use.input` is an object in this format, so its arguments
are written as JSON with the keys in the order of the log; what the model generated is not
known. `cache_control` marks are left out: they move between requests and no template
prints them.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from warmturn.errors import InvalidInput
from warmturn.formats import fields
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, joined, one_by_one
from warmturn.formats.openai_log import envelope_parts, opened, request_parts
from warmturn.formats.record import LoggedRequest

__all__ = [
    "ANTHROPIC",
    "message_parts",
    "openai_message",
    "openai_messages",
    "openai_system",
    "openai_tools",
]

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
_OWN_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")


def openai_messages(messages: Iterable[JsonObject]) -> tuple[JsonObject, ...]:
    """Return the messages in OpenAI form; a tool result becomes a message of its own.

    Raises `InvalidInput` for blocks that are none.
    """
    converted: list[JsonObject] = []
    for message in messages:
        if message["role"] == "assistant":
            converted.append(openai_message(message))
        else:
            converted += _user_messages(message)
    return tuple(converted)


def openai_message(message: JsonObject) -> JsonObject:
    """Return an assistant message in OpenAI form: content, reasoning, tool_calls."""
    blocks = _blocks(message.get("content"))
    converted: JsonObject = {"role": "assistant", "content": _content(blocks)}
    thinking = [block.get("thinking") for block in blocks if block.get("type") == "thinking"]
    if thinking:
        converted["reasoning"] = "".join(text for text in thinking if isinstance(text, str))
    calls = [_tool_call(block) for block in blocks if block.get("type") == "tool_use"]
    if calls:
        converted["tool_calls"] = calls
    return converted


def openai_system(system: object) -> list[JsonObject]:
    """Return the body's `system` as a message, none where it is empty.

    Raises `InvalidInput` for blocks that are none.
    """
    return [{"role": "system", "content": _content(_blocks(system))}] if system else []


def openai_tools(tools: object) -> tuple[JsonObject, ...] | None:
    """Return the body's `tools` in OpenAI form. Raises `InvalidInput` for what is no list of them."""
    known = fields.tools(tools)
    return None if known is None else tuple(map(_tool, known))


def message_parts(response: JsonObject) -> JsonObject:
    """Return what a response message says, as fields of `LoggedRequest` by name."""
    usage = fields.mapping(response, "usage") or {}
    read = fields.count(usage, "cache_read_input_tokens")
    new = fields.count(usage, "input_tokens")
    written = fields.count(usage, "cache_creation_input_tokens")
    stop = fields.text(response, "stop_reason")
    return {
        "request_id": fields.text(response, "id"),
        "model": fields.text(response, "model"),
        "reply": openai_message(response),
        "finish_reason": _FINISH_REASONS.get(stop, stop) if stop else None,
        # input_tokens counts only what was neither read from nor written to the cache.
        "prompt_tokens": None if new is None else new + (read or 0) + (written or 0),
        "cached_tokens": read,
        "completion_tokens": fields.count(usage, "output_tokens"),
    }


def _convert(entry: Entry) -> Iterator[LoggedRequest]:
    body, response = opened(entry.value)
    messages = fields.messages(body.get("messages"))
    parts: JsonObject = {
        **request_parts({**body, "messages": [], "tools": None}),
        "messages": (*openai_system(body.get("system")), *openai_messages(messages)),
        "tools": openai_tools(body.get("tools")),
    }
    reply = message_parts(response) if _is_message(response) else {}
    yield joined(entry, envelope_parts(entry.value), parts, reply)


def _recognises(record: JsonObject) -> bool:
    """A body that OpenAI's form could be as well is not claimed: it reads the same there."""
    body, response = opened(record)
    messages = body.get("messages")
    if not isinstance(messages, list):
        return False
    tools = body["tools"] if isinstance(body.get("tools"), list) else []
    return (
        "system" in body
        or _is_message(response)
        or any(isinstance(t, dict) and "input_schema" in t for t in tools)
        or any(block.get("type") in _OWN_BLOCKS for block in _all_blocks(messages))
    )


def _is_message(response: object) -> bool:
    return (
        isinstance(response, dict)
        and response.get("type") == "message"
        and isinstance(response.get("content"), list)
    )


def _all_blocks(messages: list[Any]) -> Iterator[JsonObject]:
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                yield block


def _blocks(content: object) -> list[JsonObject]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise InvalidInput("content is neither text nor a list of blocks")
    return content


def _content(blocks: list[JsonObject]) -> str | list[JsonObject] | None:
    """Text blocks and images as OpenAI content: one text alone is plain text."""
    parts = [part for part in map(_part, blocks) if part is not None]
    if not parts:
        return None
    if len(parts) == 1 and parts[0].get("type") == "text":
        text: str = parts[0]["text"]
        return text
    return parts


def _part(block: JsonObject) -> JsonObject | None:
    kind = block.get("type")
    if kind == "text":
        if not isinstance(block.get("text"), str):
            raise InvalidInput("a text block has no text")
        return {"type": "text", "text": block["text"]}
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _image_url(block)}}
    if kind in _OWN_BLOCKS:
        return None
    return {name: value for name, value in block.items() if name != "cache_control"}


def _image_url(block: JsonObject) -> str:
    source = fields.mapping(block, "source") or {}
    url = fields.text(source, "url")
    return url or f"data:{source.get('media_type')};base64,{source.get('data')}"


def _tool_call(block: JsonObject) -> JsonObject:
    arguments = json.dumps(block.get("input"), ensure_ascii=False)
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _user_messages(message: JsonObject) -> Iterator[JsonObject]:
    """Tool results and what the user wrote, in the order of the blocks."""
    if isinstance(message.get("content"), str | None):
        yield {"role": message["role"], "content": message.get("content")}
        return
    said: list[JsonObject] = []
    for block in _blocks(message["content"]):
        if block.get("type") != "tool_result":
            said.append(block)
            continue
        if said:
            yield {"role": message["role"], "content": _content(said)}
            said = []
        result = _content(_blocks(block.get("content")))
        yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": result}
    if said:
        yield {"role": message["role"], "content": _content(said)}


def _tool(tool: JsonObject) -> JsonObject:
    if "input_schema" not in tool:
        return tool  # a server's own tool: no function of the client
    function = {n: tool[n] for n in ("name", "description") if n in tool}
    return {"type": "function", "function": {**function, "parameters": tool["input_schema"]}}


ANTHROPIC = Format(
    name="anthropic",
    about="Anthropic Messages requests, alone or with responses",
    level="full",
    recognises=_recognises,
    read=one_by_one(_convert),
)
