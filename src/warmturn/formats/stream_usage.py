"""The usage at the end of a stream: asked for on the gateway's behalf, shown only to who asked.

A gateway has to learn `cached_tokens` of every answer. Upstream sends them in a last event with
empty `choices`, on which clients that index `choices[0]` break; so that event is taken out again
unless the client wanted it. All other bytes pass unchanged.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["StreamUsage", "upstream_stream_options", "wants_usage"]

_MAX_EVENT_BYTES = 2**20
"""A longer event is not looked into: it passes."""
_BORDERS = (b"\r\n\r\n", b"\n\n", b"\r\r")
_ASKED = "include_usage"


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    choices: list[msgspec.Raw] | None = None
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Event).decode


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
    """Reads the usage out of one stream of server-sent events as its bytes pass.

    An event is held back until its end is seen, so that it can be taken out whole.
    """

    def __init__(self, *, shown: bool) -> None:
        """`shown`: the client asked for usage, so that all events pass."""
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        """None where no usage came (an aborted stream) or it does not tell."""
        self.completion_tokens: int | None = None
        self._shown = shown
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client gets because of `chunk`: whole events."""
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

    def _passes(self, event: bytes) -> bool:
        if b'"usage"' not in event:
            return True
        try:
            decoded = _decode(_data_of(event))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return True
        if decoded.usage is None:
            return True
        self._note(decoded.usage)
        return self._shown or bool(decoded.choices) or decoded.choices is None

    def _note(self, usage: _Usage) -> None:
        self.prompt_tokens = usage.prompt_tokens
        self.completion_tokens = usage.completion_tokens
        details = usage.prompt_tokens_details
        self.cached_tokens = None if details is None else details.cached_tokens


def _event_end(data: bytes) -> int | None:
    """Return where the first event ends, its empty line included."""
    ends = [at + len(border) for border in _BORDERS if (at := data.find(border)) >= 0]
    return min(ends, default=None)


def _data_of(event: bytes) -> bytes:
    """Return the joined `data` lines of an event."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)
