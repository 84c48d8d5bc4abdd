"""Logs of OpenAI chat and completion requests, alone or with their responses.

A record is a request body; or an envelope with a request and a response under one of the
usual names, each as an object, as JSON text, or once more inside `body` (as batch files
have it); or warmturn's own simple form, a body with `request_id`, `session_id`,
`timestamp` and `output`, the text as the model generated it.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from warmturn.errors import InvalidInput
from warmturn.formats import fields
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, joined, one_by_one
from warmturn.formats.openai_reply import is_response, reply_parts
from warmturn.formats.record import LoggedRequest

__all__ = ["OPENAI", "convert", "envelope_parts", "opened", "request_parts"]

REQUEST_NAMES = ("request", "req", "request_body", "body", "input", "kwargs", "payload")
RESPONSE_NAMES = ("response", "resp", "response_body", "output", "completion", "result")


def opened(record: JsonObject) -> tuple[JsonObject, Any]:
    """Return the request body ({} where there is none) and the response of a record."""
    if "messages" in record or "prompt" in record:
        body: object = record
    else:
        body = next((_unwrapped(record[name]) for name in REQUEST_NAMES if name in record), {})
    response = next((_unwrapped(record[name]) for name in RESPONSE_NAMES if name in record), None)
    if response is None and is_response(record):
        response = record
    return (body if isinstance(body, dict) else {}), response


def request_parts(body: JsonObject) -> JsonObject:
    """Return what a request body says, as fields of `LoggedRequest` by name.

    Raises `InvalidInput` for messages, tools or a prompt that are none.
    """
    parts: JsonObject = {
        "request_id": fields.text(body, "request_id", "rid"),
        "model": fields.text(body, "model"),
        "cache_salt": fields.text(body, "cache_salt"),
        "tools": fields.tools(body.get("tools")),
        "template_kwargs": _template_kwargs(body),
        **_prompt_parts(body),
    }
    metadata = fields.mapping(body, "metadata") or {}
    return {**parts, "conversation_id": _conversation_id(metadata)}


def envelope_parts(record: JsonObject) -> JsonObject:
    """Return what stands around request and response: ids and times."""
    return {
        "request_id": fields.text(record, "request_id", "custom_id"),
        "conversation_id": _conversation_id(record),
        "adapter": fields.text(record, "adapter"),
        "timestamp_s": fields.seconds(
            record, "timestamp", "ts", "timestamp_s", "start_time", "created_at", "time"
        ),
        "end_s": fields.seconds(record, "end_time", "end_s", "completed_at"),
    }


def convert(entry: Entry) -> Iterator[LoggedRequest]:
    """Read one record. Raises `InvalidInput`."""
    body, response = opened(entry.value)
    parts = [envelope_parts(entry.value), request_parts(body), _response_parts(response, entry)]
    yield joined(entry, *parts)


class _Names(msgspec.Struct):
    """The fields of a record that name its conversation."""

    session_id: Any = None
    conversation_id: Any = None
    thread_id: Any = None
    chat_id: Any = None


_NAMES = msgspec.json.Decoder(_Names)


def conversation_of(data: bytes) -> str | None:
    """Return the conversation's id as `convert` finds it, None for what cannot be read."""
    try:
        named = _conversation_id(msgspec.structs.asdict(_NAMES.decode(data)))
        return named or next(convert(Entry("", 0, msgspec.json.decode(data)))).conversation_id
    except (InvalidInput, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _recognises(record: JsonObject) -> bool:
    body, response = opened(record)
    prompt = body.get("prompt")
    return isinstance(body.get("messages"), list) or (
        isinstance(prompt, str | list) and ("model" in body or is_response(response))
    )


def _unwrapped(value: object) -> Any:
    """Open JSON text, and the `body` of a batch line or of a logged HTTP exchange."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return value
    if isinstance(value, dict) and "body" in value and "messages" not in value:
        return _unwrapped(value["body"])
    return value


def _prompt_parts(body: JsonObject) -> JsonObject:
    if body.get("messages") is not None:
        return {"messages": fields.messages(body["messages"])}
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return {"prompt_text": prompt}
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        return _prompt_parts({"prompt": prompt[0]})
    return {"prompt_token_ids": fields.token_ids(prompt, name="prompt")}


def _template_kwargs(body: JsonObject) -> JsonObject:
    """The template's arguments; servers hand it `reasoning_effort` as well."""
    extra = fields.mapping(body, "extra_body") or {}
    kwargs = fields.mapping(body, "chat_template_kwargs")
    kwargs = kwargs or fields.mapping(extra, "chat_template_kwargs") or {}
    effort = fields.text(body, "reasoning_effort")
    return ({"reasoning_effort": effort} if effort else {}) | kwargs


def _conversation_id(record: JsonObject) -> str | None:
    return fields.text(record, "session_id", "conversation_id", "thread_id", "chat_id")


def _response_parts(response: object, entry: Entry) -> JsonObject:
    if response is None:
        return {}
    if isinstance(response, dict | list) and is_response(response):
        return reply_parts(response)
    if isinstance(response, dict) and "role" in response:
        return {"reply": fields.messages([response], name="response")[0]}
    if isinstance(response, str):
        if response is entry.value.get("output"):
            return {"reply_text": response}
        return {"reply": {"role": "assistant", "content": response}}
    if isinstance(response, dict) and ("error" in response or not response):
        return {}  # the request failed; its prompt was sent all the same
    raise InvalidInput("the response is neither an OpenAI response, nor a message, nor text")


OPENAI = Format(
    name="openai",
    about="OpenAI chat or completion requests, alone or with responses; batch files",
    level="full",
    recognises=_recognises,
    conversation_of=conversation_of,
    read=one_by_one(convert),
)
