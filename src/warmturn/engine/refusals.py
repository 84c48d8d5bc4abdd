"""Errors to answers in OpenAI's shape. No traceback, prompt or salt leaves through here."""

import logging
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from warmturn.errors import CallerError, InvalidRequest, NeverFits, PeerError
from warmturn.formats import openai_error

__all__ = [
    "BODY_TIMEOUT",
    "BODY_TOO_LARGE",
    "HANDLERS",
    "MODEL_NOT_FOUND",
    "error_body",
    "json_response",
    "log_failure",
    "overloaded",
    "refusal",
]

logger = logging.getLogger(__name__)

BODY_TIMEOUT = "body_timeout"
BODY_TOO_LARGE = "body_too_large"
CONTEXT_LENGTH = "context_length_exceeded"
MODEL_NOT_FOUND = "model_not_found"

_STATUS_OF_CODE = {
    BODY_TIMEOUT: HTTPStatus.REQUEST_TIMEOUT,
    BODY_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    MODEL_NOT_FOUND: HTTPStatus.NOT_FOUND,
}

_CLIENT_GONE = 499
"""nginx's status for a client that left; nobody reads it."""


def error_body(error: Exception) -> dict[str, Any]:
    """Return `error` as OpenAI's error object.

    Only errors raised on purpose show their message; of any other the client learns
    nothing but that it happened.
    """
    if isinstance(error, CallerError):
        code = CONTEXT_LENGTH if isinstance(error, NeverFits) else getattr(error, "code", None)
        param = getattr(error, "param", None)
        return openai_error(str(error), "invalid_request_error", param=param, code=code)
    if isinstance(error, PeerError):
        return openai_error(str(error), "service_unavailable", code="service_unavailable")
    message = "the server failed on this request; its log says where"
    return openai_error(message, "server_error", code="internal_error")


def json_response(
    data: object, *, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    """Return `data` as JSON."""
    body = msgspec.json.encode(data)
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def refusal(error: Exception) -> Response:
    """Return the answer for `error`, with the status its kind calls for."""
    status = _status_of(error)
    # Of a body that was not read to its end the rest may still come: the connection is spent.
    is_unread = getattr(error, "code", None) in (BODY_TIMEOUT, BODY_TOO_LARGE)
    headers = {"connection": "close"} if is_unread else None
    return json_response(error_body(error), status=status, headers=headers)


def overloaded(num_requests: int) -> Response:
    """Return the answer of a server that has as many requests as it takes."""
    message = f"the server is busy with {num_requests} requests, its limit; try again in a second"
    error = openai_error(message, "service_unavailable", code="server_overloaded")
    return json_response(error, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"retry-after": "1"})


def log_failure(error: Exception) -> None:
    """Log where an unexpected error happened, without its message, which may quote a prompt.

    What the client is told in full is not logged: it is no failure of ours.
    """
    if isinstance(error, CallerError | PeerError):
        return
    where = "".join(traceback.format_tb(error.__traceback__))
    logger.error("a request failed with %s\n%s", type(error).__name__, where)


def _status_of(error: Exception) -> HTTPStatus:
    if isinstance(error, InvalidRequest):
        return _STATUS_OF_CODE.get(error.code or "", HTTPStatus.BAD_REQUEST)
    if isinstance(error, CallerError):
        return HTTPStatus.BAD_REQUEST
    if isinstance(error, PeerError):
        return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.INTERNAL_SERVER_ERROR


async def _refuse(_: Request, error: Exception) -> Response:
    return refusal(error)


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}; see docs/reference/api.md"
    return json_response(
        openai_error(message, "invalid_request_error"),
        status=error.status_code,
        headers=error.headers,
    )


async def _nobody(_: Request, __: Exception) -> Response:
    return Response(status_code=_CLIENT_GONE)


HANDLERS: Mapping[Any, Any] = {
    CallerError: _refuse,
    PeerError: _refuse,
    HTTPException: _refuse_http,
    ClientDisconnect: _nobody,
}
"""Starlette's table of exception handlers."""
