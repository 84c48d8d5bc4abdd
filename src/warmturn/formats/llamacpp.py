"""llama.cpp server logs: /completion bodies with their responses, or responses alone.

A response repeats the prompt as text; `tokens` has the generated ids if the request asked
for `return_tokens`. `tokens_cached` counts what the slot holds after the reply, not what
was reused: that is `timings.cache_n`. Chat answers with `timings` are OpenAI responses.
"""

import json
from collections.abc import Iterator

from warmturn.formats import fields
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, joined, one_by_one
from warmturn.formats.openai_log import envelope_parts, opened, request_parts
from warmturn.formats.openai_reply import is_response, reply_parts, usage_parts
from warmturn.formats.record import LoggedRequest

__all__ = ["LLAMACPP"]

_FINISH_REASONS = {"eos": "stop", "word": "stop", "limit": "length"}


def _recognises(record: JsonObject) -> bool:
    _, response = _opened(record)
    if response is None:
        return False
    return "timings" in response or {"content", "tokens_evaluated"} <= response.keys()


def _convert(entry: Entry) -> Iterator[LoggedRequest]:
    body, response = _opened(entry.value)
    request = request_parts(body)
    request["adapter"] = json.dumps(body["lora"]) if body.get("lora") else None
    envelope = {} if entry.value is response else envelope_parts(entry.value)
    yield joined(entry, envelope, request, *_response_parts(response or {}))


def _opened(record: JsonObject) -> tuple[JsonObject, JsonObject | None]:
    """A response alone has `prompt` as a request has, and `content` as no request has."""
    if "content" in record and "messages" not in record:
        return {}, record
    body, response = opened(record)
    return body, response if isinstance(response, dict) else None


def _response_parts(response: JsonObject) -> list[JsonObject]:
    if not is_response(response):
        return [_completion(response)]
    # A server started with --verbose puts what /completion says into chat answers too.
    return [reply_parts(response), _completion(fields.mapping(response, "__verbose") or {})]


def _completion(response: JsonObject) -> JsonObject:
    """What a /completion response says, as fields of `LoggedRequest` by name."""
    counts = usage_parts(response)
    if counts["prompt_tokens"] is None:
        counts["prompt_tokens"] = fields.count(response, "tokens_evaluated")
    stop = fields.text(response, "stop_type")
    return {
        "model": fields.text(response, "model"),
        "prompt_text": fields.text(response, "prompt"),
        "reply_text": fields.written(response, "content"),
        # An empty list means that ids were not asked for.
        "reply_token_ids": fields.token_ids(response.get("tokens") or None, name="tokens"),
        "finish_reason": _FINISH_REASONS.get(stop) if stop else None,
        **counts,
    }


LLAMACPP = Format(
    name="llamacpp",
    about="llama.cpp server responses, alone or with their requests",
    level="full",
    recognises=_recognises,
    read=one_by_one(_convert),
)
