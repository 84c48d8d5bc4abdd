"""The assistant's message in an answer's bytes, as the client will probably send it back."""

from typing import Any

import msgspec

from warmturn.formats.openai_reply import reply_parts

__all__ = ["reply_message"]


def reply_message(answer: bytes) -> dict[str, Any] | None:
    """Return the message of an answer, streamed or whole; None where it has none.

    Raises `InvalidInput`, or `msgspec.DecodeError`, for bytes that are no answer.
    """
    is_stream = answer.lstrip().startswith((b"data:", b":", b"event:", b"id:"))
    response = _chunks(answer) if is_stream else msgspec.json.decode(answer)
    if not isinstance(response, dict | list):
        return None
    message = reply_parts(response)["reply"]
    if not isinstance(message, dict):
        return None
    return {name: value for name, value in message.items() if value not in (None, [])}


def _chunks(answer: bytes) -> list[Any]:
    lines = answer.splitlines()
    data = [line[5:].strip() for line in lines if line.startswith(b"data:")]
    return [msgspec.json.decode(event) for event in data if event.startswith(b"{")]
