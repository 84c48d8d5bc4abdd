"""The usage an answer reports: asked for on the gateway's behalf, shown only to who asked.

A gateway has to learn `cached_tokens` of every answer. Upstream sends them in a last event with
empty `choices`, on which clients that index `choices[0]` break; so that event is taken out again
unless the client wanted it. All other bytes pass unchanged. One reader serves OpenAI's chat,
completions, embeddings and responses, and Anthropic's messages, streamed or not: their names differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

__all__ = [
    "AnswerUsage",
    "StreamUsage",
    "read_answer_usage",
    "upstream_stream_options",
    "wants_usage",
]

_MAX_EVENT_BYTES = 2**20
"""A longer event is not looked into: it passes."""
_MAX_EVENTS_FOR_ID = 8
"""An id stands in the first event, or behind a few that only keep the connection open."""
_BORDERS = (b"\r\n\r\n", b"\n\n", b"\r\r")
_ENDS = (b"\n\n", b"\r\n\r\n")
_ASKED = "include_usage"


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    # OpenAI's responses, and Anthropic's messages.
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    # Anthropic's `input_tokens` are those in no cache and written to none.
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Inner(msgspec.Struct):
    """`response` in events of OpenAI's responses, `message` in Anthropic's first one."""

    id: str | None = None
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    id: str | None = None
    choices: list[msgspec.Raw] | None = None
    usage: _Usage | None = None
    response: _Inner | None = None
    message: _Inner | None = None


_decode = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True)
class AnswerUsage:
    """What an answer says of itself; None where it does not."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    response_id: str | None = None

    def note(self, event: "_Event") -> None:
        """Take what one event, or a whole answer, says; later ones add and overwrite."""
        for part in (event, event.response, event.message):
            if part is None:
                continue
            if self.response_id is None:
                self.response_id = part.id
            if part.usage is not None:
                self._note_usage(part.usage)

    def _note_usage(self, usage: _Usage) -> None:
        if usage.input_tokens is None:
            prompt, details = usage.prompt_tokens, usage.prompt_tokens_details
            cached = None if details is None else details.cached_tokens
        else:
            read, details = usage.cache_read_input_tokens, usage.input_tokens_details
            cached = read if details is None else details.cached_tokens
            prompt = usage.input_tokens + (read or 0) + (usage.cache_creation_input_tokens or 0)
        completion = (
            usage.output_tokens if usage.completion_tokens is None else usage.completion_tokens
        )
        # Anthropic tells the prompt in the first event and the completion in the last.
        self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        self.cached_tokens = self.cached_tokens if cached is None else cached
        self.completion_tokens = self.completion_tokens if completion is None else completion


def read_answer_usage(body: bytes, *, is_tail: bool = False) -> AnswerUsage:
    """Read an answer that was not streamed; of a long one, its last bytes will do (`is_tail`)."""
    if is_tail:
        at = body.rfind(b'"usage":')
        body = b"{" + body[at:] if at >= 0 else b""
    found = AnswerUsage()
    try:
        found.note(_decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return AnswerUsage()
    return found


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Say whether the client asked for the usage of its stream itself."""
    options = body.get("stream_options")
    return isinstance(options, Mapping) and options.get(_ASKED) is True


def upstream_stream_options(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `stream_options` to send upstream; None where the field has to be absent.

    A stream is always asked for its usage, other options survive. Without a stream, servers refuse
    the field.
    """
    if body.get("stream") is not True:
        return None
    options = body.get("stream_options")
    return {**(options if isinstance(options, Mapping) else {}), _ASKED: True}


class StreamUsage:
    """Reads usage and id out of one stream of server-sent events as its bytes pass.

    An event is held back until its end is seen, so that it can be taken out whole.
    """

    __slots__ = ("_num_unnamed", "_rest", "_shown", "usage")

    def __init__(self, *, shown: bool) -> None:
        """`shown`: the client asked for usage, so that all events pass."""
        self.usage = AnswerUsage()
        """Empty where no usage came: the stream was aborted, or its server has none."""
        self._shown = shown
        self._rest = b""
        self._num_unnamed = 0

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client gets because of `chunk`: whole events."""
        if not self._rest and self._has_id and chunk.endswith(_ENDS) and b'"usage"' not in chunk:
            return chunk  # nearly every chunk of every stream: whole events, none of interest
        data = self._rest + chunk
        passed = []
        while (end := _event_end(data)) is not None:
            event, data = data[:end], data[end:]
            if self._passes(event):
                passed.append(event)
        if len(data) > _MAX_EVENT_BYTES:
            passed.append(data)
            data = b""
        self._rest = data
        return b"".join(passed)

    def finish(self) -> bytes:
        """Return what was held back when the stream ended, within an event or not."""
        rest, self._rest = self._rest, b""
        return rest if self._passes(rest) else b""

    @property
    def _has_id(self) -> bool:
        return self.usage.response_id is not None or self._num_unnamed >= _MAX_EVENTS_FOR_ID

    def _passes(self, event: bytes) -> bool:
        if b'"usage"' not in event and self._has_id:
            return True
        self._num_unnamed += 1
        try:
            decoded = _decode(_data_of(event))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return True
        self.usage.note(decoded)
        if decoded.usage is None:
            return True
        return self._shown or bool(decoded.choices) or decoded.choices is None


def _event_end(data: bytes) -> int | None:
    """Return where the first event ends, its empty line included."""
    ends = [at + len(border) for border in _BORDERS if (at := data.find(border)) >= 0]
    return min(ends, default=None)


def _data_of(event: bytes) -> bytes:
    """Return the joined `data` lines of an event."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)
