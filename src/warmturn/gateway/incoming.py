"""A framed request → the call that it makes, or why it is none of the gateway's."""

from collections.abc import Callable, Mapping

import httptools

from warmturn.gateway.call_body import read_fields
from warmturn.gateway.request_reader import Request
from warmturn.gateway.turns import Api, Call, CallFields, Refused

__all__ = ["LocalAnswers", "read_call"]

LocalAnswers = Mapping[bytes, Callable[[], bytes]]
"""Paths that the gateway answers itself, with JSON: `/v1/models`."""

_RELAYED_METHODS = frozenset({b"GET", b"HEAD", b"POST"})


def read_call(request: Request, paths: Mapping[bytes, Api], now: float) -> Call:
    """Return the call of `request`. Raises `Refused`: 404, 405, or 400 for its body."""
    target = request.target
    api = paths.get(target)
    if api is None:
        api = _api_of(request, paths)
        target = request.target
    if api is Api.OTHER:
        _check_method(request.method, _RELAYED_METHODS)
        fields = read_fields(request.body, api) if request.body else CallFields()
    else:
        if request.method != b"POST":
            _check_method(request.method, frozenset({b"POST"}))
        fields = read_fields(request.body, api)
    return Call(api, target.decode("latin-1"), request.headers, request.body, fields, now)


def _api_of(request: Request, paths: Mapping[bytes, Api]) -> Api:
    """Find a target with a query, or in absolute form, which is made an ordinary one."""
    if not request.target.startswith(b"/"):
        request.target = _origin_form(request.target)
    path = request.target.partition(b"?")[0]
    api = paths.get(path)
    if api is None:
        shown = path[:100].decode("latin-1")
        raise Refused(404, f"there is no {shown}; see /v1/chat/completions", code="not_found")
    return api


def _origin_form(target: bytes) -> bytes:
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError as error:
        raise Refused(400, "the request's target is no path; send '/v1/...'") from error
    path: bytes | None = url.path
    query: bytes | None = url.query
    if not path:
        raise Refused(400, "the request's target has no path; send '/v1/...'")
    return path if query is None else path + b"?" + query


def _check_method(method: bytes, served: frozenset[bytes]) -> None:
    if method not in served:
        names = ", ".join(sorted(name.decode() for name in served))
        raise Refused(405, f"{method.decode()} is not served here; use {names}")
