"""Rollout files of Codex (`~/.codex/sessions/…/rollout-*.jsonl`).

Lines are `{timestamp, type, payload}`. What the model produced in one request (reasoning,
text, calls) is a run of response items; the run ends where the next input begins. After
`compacted` the history is the replacement given there, or the summary. Tools and the
system prompt are not all in the file: level `messages`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from warmturn.errors import InvalidInput
from warmturn.formats import fields
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, collected, joined
from warmturn.formats.record import LoggedRequest

__all__ = ["CODEX"]

_LINE_TYPES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = ("function_call_output", "custom_tool_call_output")


class _Rollout:
    """Reads one rollout: the history so far, and the answer that is being put together."""

    def __init__(self) -> None:
        self._session: str | None = None
        self._model: str | None = None
        self._history: list[JsonObject] = []
        self._sent_s: float | None = None
        self._answer: JsonObject | None = None
        self._answer_entry: Entry | None = None
        self._answered: JsonObject = {}

    def add(self, entry: Entry) -> Iterable[LoggedRequest]:
        payload = fields.mapping(entry.value, "payload")
        readers: dict[str, Callable[[Entry, JsonObject], Iterable[LoggedRequest]]] = {
            "session_meta": self._add_meta,
            "turn_context": self._add_context,
            "response_item": self._add_item,
            "event_msg": self._add_event,
            "compacted": self._add_summary,
        }
        kind = fields.text(entry.value, "type")
        if payload is None or kind not in readers:
            raise InvalidInput("this line is not {timestamp, type, payload} of a rollout")
        return readers[kind](entry, payload)

    def finish(self) -> Iterator[LoggedRequest]:
        if self._answer is None or self._answer_entry is None:
            return
        entry, parts = self._answer_entry, self._parts()
        self._history.append(self._answer)
        self._answer, self._answered = None, {}
        if parts["messages"]:
            yield joined(entry, parts, level="messages")

    def _parts(self) -> JsonObject:
        return {
            "conversation_id": self._session,
            "model": self._model,
            "messages": tuple(self._history),
            "reply": self._answer,
            "timestamp_s": self._sent_s,
            **self._answered,
        }

    def _add_meta(self, _entry: Entry, payload: JsonObject) -> Iterable[LoggedRequest]:
        """A session begins; a second one in a file is the one it was forked from."""
        if self._session is None:
            self._session = fields.text(payload, "id", "session_id")
        return ()

    def _add_context(self, _entry: Entry, payload: JsonObject) -> Iterable[LoggedRequest]:
        finished = tuple(self.finish())
        self._model = fields.text(payload, "model")
        return finished

    def _add_item(self, entry: Entry, item: JsonObject) -> Iterable[LoggedRequest]:
        made = _made_by_model(item)
        if made is None:
            said = _said_to_model(item)
            finished = tuple(self.finish()) if said else ()
            self._history += said
            self._sent_s = fields.seconds(entry.value, "timestamp") if said else self._sent_s
            return finished
        if self._answer is None:
            self._answer, self._answer_entry = {"role": "assistant", "content": None}, entry
        _extend(self._answer, made)
        self._answered["end_s"] = fields.seconds(entry.value, "timestamp")
        return ()

    def _add_event(self, _entry: Entry, payload: JsonObject) -> Iterable[LoggedRequest]:
        """Take the counts of a finished answer; `total_token_usage` adds all turns up."""
        info = fields.mapping(payload, "info") or {}
        usage = fields.mapping(info, "last_token_usage")
        if payload.get("type") == "token_count" and usage and self._answer is not None:
            self._answered |= {
                "prompt_tokens": fields.count(usage, "input_tokens"),
                "cached_tokens": fields.count(usage, "cached_input_tokens"),
                "completion_tokens": fields.count(usage, "output_tokens"),
            }
        return ()

    def _add_summary(self, _entry: Entry, payload: JsonObject) -> Iterable[LoggedRequest]:
        finished = tuple(self.finish())
        replacement = payload.get("replacement_history")
        if isinstance(replacement, list):
            self._history = _replayed(replacement)
        else:
            summary = fields.text(payload, "message", "summary")
            self._history = [{"role": "user", "content": summary}] if summary else []
        return finished


def _made_by_model(item: JsonObject) -> JsonObject | None:
    """Return the part of an assistant message that an item is, None for input."""
    kind = fields.text(item, "type")
    if kind == "message" and item.get("role") == "assistant":
        return {"content": _text(item.get("content"))}
    if kind == "reasoning":
        return {"reasoning": _text(item.get("content")) or _text(item.get("summary"))}
    if kind not in _CALLS:
        return None
    arguments = item.get(_CALLS[kind])
    if not isinstance(arguments, str):
        raise InvalidInput(f"{kind} has no text named {_CALLS[kind]}")
    function = {"name": item.get("name"), "arguments": arguments}
    return {"tool_calls": [{"id": item.get("call_id"), "type": "function", "function": function}]}


def _said_to_model(item: JsonObject) -> list[JsonObject]:
    """Return the messages that an input item is; items of other kinds are none."""
    if item.get("type") == "message" and isinstance(item.get("role"), str):
        return [{"role": item["role"], "content": _content(item.get("content"))}]
    if item.get("type") in _RESULTS:
        output = item.get("output")
        if isinstance(output, dict):  # older files wrap the text
            output = output.get("content")
        content = output if isinstance(output, str | None) else _content(output)
        return [{"role": "tool", "tool_call_id": item.get("call_id"), "content": content}]
    return []


def _extend(answer: JsonObject, part: JsonObject) -> None:
    for name, value in part.items():
        if value:
            known = answer.get(name)
            answer[name] = value if known is None else known + value


def _replayed(items: list[Any]) -> list[JsonObject]:
    """Return the messages of a list of items, the model's parts put together."""
    history: list[JsonObject] = []
    answer: JsonObject | None = None
    for item in items:
        if not isinstance(item, dict):
            raise InvalidInput("replacement_history holds something that is no item")
        made = _made_by_model(item)
        if made is None:
            said = _said_to_model(item)
            answer = None if said else answer
            history += said
            continue
        if answer is None:
            answer = {"role": "assistant", "content": None}
            history.append(answer)
        _extend(answer, made)
    return history


def _text(parts: object) -> str | None:
    """Join the texts of a list of content parts."""
    texts = [p.get("text") for p in parts if isinstance(p, dict)] if isinstance(parts, list) else []
    return "".join(text for text in texts if isinstance(text, str)) or None


def _content(parts: object) -> str | list[JsonObject] | None:
    """Content as OpenAI's chat form has it: text, or parts where there is more than text."""
    if isinstance(parts, str | None):
        return parts
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise InvalidInput("content is neither text nor a list of parts")
    if all(isinstance(part.get("text"), str) for part in parts):
        return _text(parts)
    return [_part(part) for part in parts]


def _part(part: JsonObject) -> JsonObject:
    if part.get("type") == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
    return {"type": "text", "text": part["text"]} if isinstance(part.get("text"), str) else part


def _recognises(record: JsonObject) -> bool:
    return record.get("type") in _LINE_TYPES and isinstance(record.get("payload"), dict)


CODEX = Format(
    name="codex",
    about="Codex rollout files",
    level="messages",
    recognises=_recognises,
    read=collected(_Rollout),
)
