"""The text log of a vLLM server with `--enable-log-requests` at DEBUG.

A request is up to three lines: `Request ID details:` with prompt and ids (DEBUG),
`Received request ID:` with parameters and adapter, and, with `--enable-log-outputs`,
`Generated response ID:`. Older servers write prompt and parameters in one line. All
other lines are passed over. Requests come out in the order of the log.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from warmturn.errors import InvalidInput
from warmturn.formats import fields
from warmturn.formats.body import JsonObject
from warmturn.formats.format import Entry, Format, Item, collected, joined
from warmturn.formats.record import BadLine, LoggedRequest, Skipped
from warmturn.formats.vllm_truncation import TruncationEvidence

__all__ = ["VLLM_LOG"]

MAX_PENDING_CHARS = 64 * 2**20
"""Log text kept while waiting for replies; then the oldest request goes without its own."""

_YEAR = 1972
"""vLLM prints no year. Times are right relative to each other; a leap year takes all dates."""

_EVENT = re.compile(
    r"(?P<event>Received request|Request|Generated response) (?P<id>\S+?)"
    r"(?P<stream> \(streaming (?:delta|complete)\))?(?P<details> details)?: (?P<rest>.*)",
    re.DOTALL,
)
_TIME = re.compile(r"(?:(\d{4})-)?(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)")
# What Python's repr writes, and no more; atomic, so that a line of 64 MB costs no stack.
_ESCAPE = r"""\\(?:[\\'"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"""
_LITERAL = re.compile(
    rf"'(?:[^'\\\0\n\r]++|{_ESCAPE})*+'"
    rf'|"(?:[^"\\\0\n\r]++|{_ESCAPE})*+"'
    r"|None|\[[^\]]*+\]"
)
_ADAPTER = re.compile(r"lora_request: LoRARequest\(.*?lora_name='([^']*)'")


@dataclass(slots=True)
class _Pending:
    """A request whose reply has not been seen."""

    entry: Entry
    prompt: JsonObject
    reply: JsonObject | None = None
    num_chars: int = 0


class _Log:
    """Reads one log: a queue of requests in the order they were received."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}  # by line, in the order of the log
        self._line_of: dict[str, int] = {}  # a request id's newest line
        self._num_chars = 0
        self._num_without_prompt = 0
        self._num_requests = 0

    def add(self, entry: Entry) -> Iterable[LoggedRequest]:
        event = _EVENT.search(entry.value)
        if event is None:
            return ()
        if event["event"] == "Generated response":
            self._add_reply(event)
        elif event["event"] == "Received request" or event["details"]:
            self._add_prompt(entry, event)
        return self._ready()

    def finish(self) -> Iterator[LoggedRequest]:
        for pending in self._pending.values():
            yield _request(pending)
        if self._num_without_prompt and not self._num_requests:
            raise InvalidInput(
                f"the log has {self._num_without_prompt} requests and no prompts: vLLM prints "
                "them at DEBUG only; start it with VLLM_LOGGING_LEVEL=DEBUG and "
                "--enable-log-requests, or log responses with return_token_ids"
            )

    def _add_prompt(self, entry: Entry, event: re.Match[str]) -> None:
        adapter = _ADAPTER.search(event["rest"])
        known = self._find(event["id"])
        if not event["rest"].startswith("prompt: "):
            if known is None:
                self._num_without_prompt += 1
            elif adapter:
                known.prompt["adapter"] = adapter[1]
            return
        prompt = {
            "request_id": event["id"],
            "adapter": adapter[1] if adapter else None,
            "timestamp_s": _time_s(entry.value),
            "prompt_text": _text(event["rest"], "prompt"),
            "prompt_token_ids": _ids(event["rest"], "prompt_token_ids"),
        }
        if prompt["prompt_text"] is None and prompt["prompt_token_ids"] is None:
            raise InvalidInput("the request has no prompt in text or tokens")
        pending = _Pending(entry, prompt, num_chars=len(entry.value))
        self._pending[entry.line] = pending
        self._line_of[event["id"]] = entry.line
        self._num_chars += pending.num_chars
        self._num_requests += 1

    def _find(self, request_id: str) -> _Pending | None:
        line = self._line_of.get(request_id)
        return None if line is None else self._pending.get(line)

    def _add_reply(self, event: re.Match[str]) -> None:
        """Take a whole reply; pieces of a streamed one are repeated by its last line."""
        # Completions are received as ID-0, ID-1 … and answered as ID.
        pending = self._find(event["id"]) or self._find(f"{event['id']}-0")
        if pending is None or (event["stream"] and "delta" in event["stream"]):
            return
        reply = pending.reply or {}
        text, ids = _text(event["rest"], "output"), _ids(event["rest"], "output_token_ids")
        reason = re.search(r"finish_reason: (\w+)\s*$", event["rest"])
        reply.update({"reply_text": text} if text is not None else {})
        reply.update({"reply_token_ids": ids} if ids is not None else {})
        if reason and reason[1] not in ("None", "streaming_complete"):  # no reason of an engine
            reply["finish_reason"] = reason[1]
        reply["end_s"] = _time_s(event.string)
        pending.reply = reply

    def _ready(self) -> Iterator[LoggedRequest]:
        """Give out the oldest requests that have their reply, or that must make room."""
        while self._pending:
            line, oldest = next(iter(self._pending.items()))
            complete = oldest.reply is not None and "reply_text" in oldest.reply
            if not complete and self._num_chars <= MAX_PENDING_CHARS:
                return
            del self._pending[line]
            if self._line_of.get(oldest.prompt["request_id"]) == line:
                del self._line_of[oldest.prompt["request_id"]]
            self._num_chars -= oldest.num_chars
            yield _request(oldest)


def _read(entries: Iterable[Entry | BadLine | Skipped]) -> Iterator[Item]:
    """Read the log. Raises `InvalidInput` as soon as it shows that prompts were cut."""
    evidence = TruncationEvidence()
    for item in collected(_Log)(entries):
        if isinstance(item, LoggedRequest):
            evidence.add(item)
        yield item
    evidence.finish()


def _recognises(line: str) -> bool:
    event = _EVENT.search(line)
    return event is not None and (
        event["event"] == "Received request" or event["details"] is not None
    )


def _request(pending: _Pending) -> LoggedRequest:
    return joined(pending.entry, pending.prompt, pending.reply or {})


def _literal(rest: str, name: str) -> object:
    """Return the Python value printed after `name: `; None where there is none."""
    label = f"{name}: "
    at = 0 if rest.startswith(label) else rest.find(f", {label}", _end_of_first(rest))
    if at < 0:
        return None
    start = rest.index(label, at) + len(label)
    found = _LITERAL.match(rest, start)
    if found is None:
        raise InvalidInput(f"{name} breaks off; the line is cut or not vLLM's own")
    return _value(found[0], name)


def _value(literal: str, name: str) -> object:
    if literal.startswith("[") and "..." in literal:
        raise InvalidInput(f"{name} is shortened with an ellipsis; log without --max-log-len")
    try:
        # A list of ids is JSON too, and much cheaper to read as that.
        value = msgspec.json.decode(literal) if literal[0] == "[" else ast.literal_eval(literal)
        if isinstance(value, str):
            value.encode()
    except (msgspec.MsgspecError, SyntaxError, ValueError) as error:
        raise InvalidInput(f"{name} cannot be read: {error}") from error
    return value


def _end_of_first(rest: str) -> int:
    """Where the first literal ends: what it quotes may look like a label."""
    _, _, value = rest.partition(": ")
    first = _LITERAL.match(value)
    return len(rest) - len(value) + (first.end() if first else 0)


def _text(rest: str, name: str) -> str | None:
    value = _literal(rest, name)
    return value if isinstance(value, str) else None


def _ids(rest: str, name: str) -> tuple[int, ...] | None:
    return fields.token_ids(_literal(rest, name), name=name)


def _time_s(line: str) -> float | None:
    found = _TIME.search(line)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or _YEAR) for part in found.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


VLLM_LOG = Format(
    name="vllm-log",
    about="text log of a vLLM server with --enable-log-requests at DEBUG",
    level="full",
    recognises=_recognises,
    read=_read,
    is_text=True,
)
