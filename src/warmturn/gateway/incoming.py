"""A framed request → the call that it makes, or why it is none of the gateway's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warmturn.gateway.call_body import read_fields
from warmturn.gateway.forwarded_head import RequestHead, read_head, split_target
from warmturn.gateway.request_reader import Request
from warmturn.gateway.turns import Api, Call, CallFields, Refused

__all__ = ["IncomingCall", "LocalAnswers", "read_call"]

LocalAnswers = Mapping[bytes, Callable[[], bytes]]
"""Paths that the gateway answers itself, with JSON: `/v1/models`."""

_RELAYED_METHODS = frozenset({b"GET", b"HEAD", b"POST"})


@dataclass(slots=True)
class IncomingCall:
    """A call, and what of its request is needed to send it on."""

    call: Call
    method: bytes
    path: bytes
    """As the table of paths has it, with the query as sent."""
    head: RequestHead


def read_call(request: Request, paths: Mapping[bytes, Api], now: float) -> IncomingCall:
    """Return the call of `request`. Raises `Refused`: 404, 405, or 400 for its body."""
    path, query = split_target(request.target)
    api = paths.get(path)
    if api is None:
        shown = path[:100].decode("latin-1")
        raise Refused(404, f"there is no {shown}; see /v1/chat/completions", code="not_found")
    if api is Api.OTHER:
        if request.method not in _RELAYED_METHODS:
            raise Refused(405, f"{request.method.decode()} is not relayed; use GET or POST")
    elif request.method != b"POST":
        raise Refused(405, f"{request.method.decode()} is not served here; use POST")
    head = read_head(request.headers)
    target = path + query if query else path
    has_fields = api is not Api.OTHER or request.body
    fields = read_fields(request.body, api) if has_fields else CallFields()
    call = Call(api, target.decode("latin-1"), head.headers, request.body, fields, now)
    return IncomingCall(call, request.method, target, head)
