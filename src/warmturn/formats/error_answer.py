"""Errors as the APIs' clients expect them: OpenAI's object, Anthropic's, and both as stream events."""

from typing import Any

import msgspec

__all__ = ["anthropic_error", "error_event", "openai_error", "responses_error_event"]

_ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def openai_error(
    message: str, kind: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return the error object that OpenAI's clients read."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def anthropic_error(message: str, status: int) -> dict[str, Any]:
    """Return the error object that Anthropic's clients read; its kind follows from the status."""
    kind = _ANTHROPIC_KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def error_event(error: dict[str, Any], *, name: str | None = None) -> bytes:
    """Return one server-sent event with `error`; Anthropic's streams name their events."""
    data = b"data: " + msgspec.json.encode(error) + b"\n\n"
    return data if name is None else b"event: " + name.encode() + b"\n" + data


def responses_error_event(message: str, code: str) -> bytes:
    """Return the event that ends a stream of OpenAI's responses API with an error."""
    error = {"type": "error", "code": code, "message": message, "param": None}
    return error_event(error, name="error")
