"""The gateway's own answers: a refusal's head and body, in the form the API's clients expect."""

import logging
import traceback
from http import HTTPStatus
from math import ceil

import msgspec

from warmturn.formats import anthropic_error, error_event, openai_error, responses_error_event
from warmturn.gateway.turns import Api, Refused

__all__ = ["STATUS_LINES", "failure", "local_answer", "refusal", "stream_failure"]

logger = logging.getLogger(__name__)

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
"""By code, CRLF included."""

_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_exceeded"}
CUT_CODE = "replica_failed"


def failure(error: Exception) -> Refused:
    """Return what a client learns of a failure of our own: that it happened.

    The log has its place but not its message, which may quote a prompt.
    """
    where = "".join(traceback.format_tb(error.__traceback__))
    logger.error("a request failed with %s\n%s", type(error).__name__, where)
    message = "the gateway failed on this request; its log says where"
    return Refused(500, message, code="internal_error")


def refusal(
    refused: Refused, api: Api, *, keeps_alive: bool, headers: bytes = b"", has_body: bool = True
) -> bytes:
    """Return the whole answer for `refused`; `headers` are further lines, each ended by CRLF."""
    body = msgspec.json.encode(_error(refused, api))
    after_s = refused.retry_after_s
    retry = b"" if after_s is None else b"retry-after: %d\r\n" % max(1, ceil(after_s))
    head = _head(refused.status, len(body), headers + retry, keeps_alive=keeps_alive)
    return head + body if has_body else head


def local_answer(body: bytes, *, keeps_alive: bool, has_body: bool = True) -> bytes:
    """Return an answer with JSON that the gateway itself knows."""
    head = _head(200, len(body), b"", keeps_alive=keeps_alive)
    return head + body if has_body else head


def stream_failure(message: str, api: Api) -> bytes:
    """Return the event that ends a stream whose replica failed."""
    if api is Api.MESSAGES:
        return error_event(anthropic_error(message, 500), name="error")
    if api is Api.RESPONSES:
        return responses_error_event(message, CUT_CODE)
    return error_event(openai_error(message, "server_error", code=CUT_CODE))


def _head(status: int, num_bytes: int, headers: bytes, *, keeps_alive: bool) -> bytes:
    return b"%bcontent-type: application/json\r\n%bcontent-length: %d\r\n%b\r\n" % (
        STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status,
        headers,
        num_bytes,
        b"" if keeps_alive else b"connection: close\r\n",
    )


def _error(refused: Refused, api: Api) -> object:
    message, status = str(refused), refused.status
    if api is Api.MESSAGES:
        return anthropic_error(message, status)
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "service_unavailable")
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = "server_error"
    return openai_error(message, kind, param=refused.param, code=refused.code)
