"""OpenAI messages to what chat templates expect, as vLLM prepares them. Pure functions.

`normalise` is for serving. To see what a template makes of messages untouched, give them to
`ChatTemplate.render` directly.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from warmturn.errors import InvalidRequest, TemplateError
from warmturn.render.content_format import ContentFormat

__all__ = [
    "Message",
    "PlainMessage",
    "alias_reasoning",
    "normalise",
    "plain_copy",
    "plain_message",
    "plain_tool",
]

Message: TypeAlias = Mapping[str, Any]
"""One chat message as parsed from JSON: `role`, `content` and whatever else came with it."""

_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")

_TEXT_KEYS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Type of a content part → the key that holds its text."""

_KEPT_KEYS = ("name", "tool_call_id", "refusal")


def normalise(
    messages: Sequence[Message], *, content_format: ContentFormat
) -> list[dict[str, Any]]:
    """Return `messages` as a template of this `content_format` expects them.

    Content becomes one string or a list of text parts (tool results always one string),
    arguments of tool calls become objects, reasoning stands under `reasoning` and
    `reasoning_content`, absent fields are left out. The input is not changed.
    Raises `InvalidRequest` with the field named.

    vLLM reads only `reasoning` from the history and drops `reasoning_content`
    (vllm issue 38488); here both are taken, since clients send both.
    """
    return [
        _normalised(message, f"messages[{index}]", content_format)
        for index, message in enumerate(messages)
    ]


def _normalised(message: Any, where: str, content_format: ContentFormat) -> dict[str, Any]:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str):
        raise InvalidRequest(f"{where} has no role; give each message a 'role'", param=where)
    wants_parts = content_format == "openai" and role != "tool"
    texts = _texts(message.get("content"), f"{where}.content")
    result: dict[str, Any] = {
        "role": role,
        "content": [_text_part(text) for text in texts] if wants_parts else "\n".join(texts),
    }
    result |= {key: message[key] for key in _KEPT_KEYS if isinstance(message.get(key), str)}
    if role == "assistant":
        result |= _reasoning(message) | _tool_calls(message, f"{where}.tool_calls")
    if role == "developer" and message.get("tools") is not None:
        result["tools"] = message["tools"]
    return result


def _text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _texts(content: Any, where: str) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InvalidRequest(
            f"{where} is a {type(content).__name__}; send a string or a list of parts", param=where
        )
    texts = [_part_text(part, f"{where}[{index}]") for index, part in enumerate(content)]
    return [text for text in texts if text is not None]


def _part_text(part: Any, where: str) -> str | None:
    """The text of one part; None where it has the right type and no text, which vLLM skips."""
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    key = _TEXT_KEYS.get(kind) if isinstance(kind, str) else None
    text = None if key is None else part.get(key)
    if key is None or not (text is None or isinstance(text, str)):
        raise InvalidRequest(
            f"{where} is of type {kind!r}; this server takes text parts only, as "
            '{"type": "text", "text": "..."}',
            param=where,
        )
    return text


def _reasoning(message: Message) -> dict[str, str]:
    for key in ("reasoning", "reasoning_content"):
        reasoning = message.get(key)
        if isinstance(reasoning, str):
            return {"reasoning": reasoning, "reasoning_content": reasoning}
    return {}


def _tool_calls(message: Message, where: str) -> dict[str, Any]:
    """The calls under their key; an empty list is left out, or templates take the call branch."""
    calls = message.get("tool_calls")
    if calls is None or calls == []:
        return {}
    if not isinstance(calls, list):
        raise InvalidRequest(f"{where} must be a list of calls", param=where)
    return {"tool_calls": [_tool_call(call, f"{where}[{i}]") for i, call in enumerate(calls)]}


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise InvalidRequest(
            f"{where} has no function; send {{'type': 'function', 'function': {{...}}}}",
            param=where,
        )
    arguments = _arguments_object(function.get("arguments"))
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments_object(arguments: Any) -> dict[str, Any]:
    """Templates walk through arguments, OpenAI sends them as a JSON string.

    What is not an object, a model's broken JSON for example, becomes an empty one, as in vLLM.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def alias_reasoning(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give each message's reasoning the names templates read, as transformers 5.24 does.

    `reasoning_content` is always set, `thinking` (which gpt-oss reads) where it is absent.
    """
    return [m if type(m) is PlainMessage else _aliased(m) for m in messages]


class PlainMessage(dict[str, Any]):
    """Data made ready for templates once, for many renders. Not to be changed.

    Templates cannot: their sandbox refuses all that changes a list or a dictionary.
    """

    __slots__ = ("dumped", "written")

    dumped: dict[Any, str]
    """What `tojson` made of it, by its arguments; templates do not see this."""

    written: dict[Any, str]
    """What a template that writes each message by itself made of it."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.dumped = {}
        self.written = {}


def plain_message(message: Message) -> PlainMessage:
    """Return a copy, objects in it too, that `ChatTemplate.render` takes as it is.

    Raises `TemplateError` as `plain_copy` does.
    """
    return _frozen(_aliased(plain_copy(message)))  # type: ignore[no-any-return]


def plain_tool(tool: Message) -> PlainMessage:
    """Do the same with a tool: none of its keys is taken for reasoning."""
    return _frozen(plain_copy(tool))  # type: ignore[no-any-return]


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return PlainMessage({key: _frozen(item) for key, item in value.items()})
    return list(map(_frozen, value)) if type(value) is list else value


def _aliased(message: dict[str, Any]) -> dict[str, Any]:
    given = (message[key] for key in _REASONING_KEYS if message.get(key) is not None)
    reasoning = next(given, None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


_AS_IT_IS = frozenset({type(None), str, int, float, bool, PlainMessage})


def plain_copy(value: Any) -> Any:
    """Copy JSON data, so that a template sees nothing of the caller's own and nothing but data.

    Raises `TemplateError` for anything else: objects have methods the sandbox does not know.
    """
    if type(value) in _AS_IT_IS:
        return value
    if type(value) is dict or isinstance(value, Mapping):
        return {
            key if type(key) is str else plain_copy(key): (
                item if type(item) in _AS_IT_IS else plain_copy(item)
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        return list(map(plain_copy, value))
    if isinstance(value, tuple):
        return tuple(map(plain_copy, value))
    raise TemplateError(
        f"a template was given a {type(value).__name__}; give it JSON data only", param="messages"
    )
