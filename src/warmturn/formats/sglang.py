"""SGLang: /generate requests with their responses, and the server's own request log in JSON.

The server logs a request twice, as `request.received` and as `request.finished`; the two
are put together by `rid`. At log level 2 it cuts prompts in the middle: refused.
"""

from collections.abc import Iterator
from typing import Any

from warmturn.errors import InvalidInput
from warmturn.formats import fields
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, collected, joined
from warmturn.formats.openai_log import envelope_parts, opened, request_parts
from warmturn.formats.openai_reply import is_response, reply_parts
from warmturn.formats.record import BadLine, LoggedRequest

__all__ = ["SGLANG"]

MAX_OPEN_REQUESTS = 1024
"""Received and not finished: more than one server runs at once. The oldest is let go as a
request without a reply."""

_HALF_OF_CUT = 1024
"""Log level 2 keeps this many characters from each end, and writes ' ... ' between."""


class _Log:
    """Reads one SGLang log."""

    def __init__(self) -> None:
        self._received: dict[str, Entry] = {}

    def add(self, entry: Entry) -> Iterator[LoggedRequest | BadLine]:
        record = entry.value
        rid = fields.text(record, "rid")
        body, response = _opened(record)
        if record.get("event") == "request.received" and rid:
            self._received[rid] = entry
            if len(self._received) > MAX_OPEN_REQUESTS:
                yield _unanswered(self._received.pop(next(iter(self._received))))
            return
        received = self._received.pop(rid, None) if rid else None
        if received is not None and not (body.get("text") or body.get("input_ids")):
            body, entry = _opened(received.value)[0], received
        yield _request(entry, body, response)

    def finish(self) -> Iterator[LoggedRequest | BadLine]:
        yield from map(_unanswered, self._received.values())


def _opened(record: JsonObject) -> tuple[JsonObject, Any]:
    if "obj" in record or "out" in record:
        return fields.mapping(record, "obj") or {}, fields.mapping(record, "out")
    if "input_ids" in record or "sampling_params" in record:
        return record, record.get("response")
    return opened(record)


def _recognises(record: JsonObject) -> bool:
    body, response = _opened(record)
    meta = response.get("meta_info") if isinstance(response, dict) else None
    generates = "input_ids" in body or ("text" in body and "sampling_params" in body)
    return isinstance(meta, dict) or generates or ("event" in record and "obj" in record)


def _unanswered(entry: Entry) -> LoggedRequest | BadLine:
    try:
        return _request(entry, *_opened(entry.value))
    except InvalidInput as error:
        return entry.bad(str(error))


def _request(entry: Entry, body: JsonObject, response: Any) -> LoggedRequest:
    envelope = envelope_parts(entry.value)
    reply: JsonObject = {}
    if isinstance(response, dict):
        reply = reply_parts(response) if is_response(response) else _generated(response)
    session = fields.mapping(body, "session_params") or {}
    own = {
        "request_id": fields.text(entry.value, "rid"),
        "conversation_id": fields.text(session, "id"),
        "adapter": fields.text(body, "lora_path"),
        "prompt_text": _uncut(fields.text(body, "text")),
        "prompt_token_ids": _input_ids(body.get("input_ids")),
        "end_s": _end_s(envelope["timestamp_s"], response),
    }
    return joined(entry, own, envelope, request_parts(body), reply)


def _generated(response: JsonObject) -> JsonObject:
    """What a /generate response says, as fields of `LoggedRequest` by name."""
    meta = fields.mapping(response, "meta_info") or {}
    reason = meta.get("finish_reason")
    output_ids = response.get("output_ids")
    return {
        "request_id": fields.text(meta, "id"),
        "reply_text": _uncut(fields.written(response, "text")),
        "reply_token_ids": fields.token_ids(output_ids, name="output_ids"),
        "finish_reason": fields.text(reason, "type") if isinstance(reason, dict) else None,
        "prompt_tokens": fields.count(meta, "prompt_tokens"),
        "cached_tokens": fields.count(meta, "cached_tokens"),
        "completion_tokens": fields.count(meta, "completion_tokens"),
    }


def _end_s(start_s: float | None, response: object) -> float | None:
    meta = fields.mapping(response, "meta_info") if isinstance(response, dict) else None
    took_s = (meta or {}).get("e2e_latency")
    return None if start_s is None or not isinstance(took_s, float) else start_s + took_s


def _input_ids(value: object) -> tuple[int, ...] | None:
    if isinstance(value, str):
        _refuse_cut()
    return fields.token_ids(value, name="input_ids")


def _uncut(text: str | None) -> str | None:
    cut_at = _HALF_OF_CUT
    if text and len(text) == 2 * cut_at + 5 and text[cut_at : cut_at + 5] == " ... ":
        _refuse_cut()
    return text


def _refuse_cut() -> None:
    raise InvalidInput("the prompt is cut in the middle; log with --log-requests-level 3")


SGLANG = Format(
    name="sglang",
    about="SGLang /generate requests and responses, and its request log in JSON",
    level="full",
    recognises=_recognises,
    read=collected(_Log),
)
