"""An answer as server-sent events, to a client that may leave at any moment."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from warmturn.engine.disconnect import while_connected
from warmturn.engine.refusals import error_body, log_failure
from warmturn.engine.reply import Delta
from warmturn.engine.responses import Answer

__all__ = ["DONE", "EventStream", "event", "events"]

DONE = b"data: [DONE]\n\n"
"""OpenAI's last event. A stream without it is not complete."""

_HEADERS = {
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # proxies that buffer would undo streaming
}


def event(data: object) -> bytes:
    """Return one event with `data` as JSON."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


async def events(
    answer: Answer, first: Delta, rest: AsyncGenerator[Delta, None]
) -> AsyncGenerator[bytes, None]:
    """Yield the events of one streamed answer.

    An error after the first one is an event too, and the last: no `DONE` follows it.
    """
    last = first
    async with aclosing(rest):
        try:
            for chunk in answer.chunks(first, is_first=True):
                yield event(chunk)
            async for delta in rest:
                last = delta
                for chunk in answer.chunks(delta, is_first=False):
                    yield event(chunk)
        except Exception as error:  # noqa: BLE001 - the status line is sent: tell it in-band
            log_failure(error)
            yield event(error_body(error))
            return
    usage = answer.final_usage(last)
    if usage is not None:
        yield event(usage)
    yield DONE


class EventStream(StreamingResponse):
    """Sends a reply's events as they come, and ends the reply at once if the client leaves.

    Starlette's own streaming notices a lost client only at the next send.
    """

    def __init__(self, answer: Answer, first: Delta, rest: AsyncGenerator[Delta, None]) -> None:
        self._rest = rest
        self._events = events(answer, first, rest)
        super().__init__(self._events, media_type="text/event-stream", headers=_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send all events, or stop quietly."""
        # Closing `_events` closes `_rest` only if the first event was ever asked for.
        async with aclosing(self._rest), aclosing(self._events):
            try:
                await while_connected(receive, self.stream_response(send))
            except (ClientDisconnect, OSError):
                return
