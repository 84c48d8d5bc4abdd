"""LiteLLM's StandardLoggingPayload, as its logging callbacks write it.

`cache_hit` tells of LiteLLM's own response cache, not of a KV cache: such a request never
reached an engine and is left out. `trace_id` is another one for each request unless the
caller sets it, so it does not count as a conversation.
"""

from collections.abc import Iterator

from warmturn.errors import InvalidInput
from warmturn.formats import fields
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, joined, one_by_one
from warmturn.formats.openai_log import request_parts
from warmturn.formats.openai_reply import is_response, reply_parts
from warmturn.formats.record import LoggedRequest

__all__ = ["LITELLM"]

_REDACTED = "redacted-by-litellm"


def _recognises(record: JsonObject) -> bool:
    payload = _payload(record)
    return "messages" in payload and (
        "model_parameters" in payload or {"call_type", "startTime"} <= payload.keys()
    )


def _convert(entry: Entry) -> Iterator[LoggedRequest]:
    payload = _payload(entry.value)
    if payload.get("cache_hit") is True:
        return
    call_type = fields.text(payload, "call_type")
    if call_type and "completion" not in call_type:
        raise InvalidInput(f"call_type is '{call_type}'; only chat completions are read")
    _refuse_redacted(payload.get("messages"))
    parameters = fields.mapping(payload, "model_parameters") or {}
    metadata = fields.mapping(payload, "metadata") or {}
    own: JsonObject = {
        "request_id": fields.text(payload, "id"),
        "conversation_id": fields.text(payload, "litellm_session_id")
        or fields.text(metadata, "litellm_session_id", "session_id"),
        "model": fields.text(payload, "model"),
        "timestamp_s": fields.seconds(payload, "startTime"),
        "end_s": fields.seconds(payload, "endTime"),
        "prompt_tokens": fields.count(payload, "prompt_tokens"),
        "completion_tokens": fields.count(payload, "completion_tokens"),
    }
    prompt = payload["messages"]
    name = "prompt" if isinstance(prompt, str) else "messages"
    request = request_parts({**parameters, name: prompt})
    yield joined(entry, own, request, _response_parts(payload.get("response")))


def _payload(record: JsonObject) -> JsonObject:
    return fields.mapping(record, "standard_logging_object") or record


def _response_parts(response: object) -> JsonObject:
    """An error, and a redacted answer, leave the request without a reply."""
    if not isinstance(response, dict) or not is_response(response):
        return {}
    parts = reply_parts(response)
    if (parts["reply"] or {}).get("content") == _REDACTED:
        parts["reply"] = None
    return parts


def _refuse_redacted(messages: object) -> None:
    """Raise for a payload whose prompt was taken out before it was written."""
    listed = messages if isinstance(messages, list) else []
    contents = [message.get("content") for message in listed if isinstance(message, dict)]
    if not messages or _REDACTED in (messages, *contents):
        raise InvalidInput(
            "the prompt is redacted; log again with turn_off_message_logging set to false"
        )


LITELLM = Format(
    name="litellm",
    about="LiteLLM StandardLoggingPayload",
    level="full",
    recognises=_recognises,
    read=one_by_one(_convert),
)
