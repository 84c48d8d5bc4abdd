"""The head of a request: what the steering reads of it, and what goes on to the replica.

Names and values go on as they were sent, one line each. What belongs to the client's connection, to
framing or to the gateway does not; credentials do only where the replica has no key of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import httptools

from warmturn.gateway.request_reader import Headers
from warmturn.gateway.turns import Refused

__all__ = ["HOP_BY_HOP", "RequestHead", "read_head", "split_target"]

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",  # written anew with the body
    }
)
"""Of one connection, never of the message."""

_NOT_FORWARDED = HOP_BY_HOP | {
    "host",
    "expect",  # answered here
    "http2-settings",
    "accept-encoding",  # usage could not be read from a compressed stream
    "x-data-parallel-rank",  # the router's to say
}
_CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key"})
_COMMON_CONNECTION = frozenset({"keep-alive", "close"})
_MAX_KNOWN = 4096
"""Of spellings of header names remembered; a client that invents more is slower served."""

_known: dict[bytes, tuple[str, int]] = {}
_FORWARDED, _CREDENTIAL, _DROPPED = range(3)


@dataclass(slots=True)
class RequestHead:
    """A request's headers, sorted by what becomes of them."""

    headers: dict[str, str]
    """All of them; lower-case names, of a repeated header the first value."""
    lines: bytes
    """Those that go on, each ended by CRLF."""
    credentials: bytes
    """Those that go on only where the replica has no key of its own."""


def read_head(headers: Headers) -> RequestHead:
    """Sort the headers of one request."""
    named: dict[str, str] = {}
    lines: list[bytes] = []
    credentials: list[bytes] = []
    for name, value in headers:
        lower, fate = _known.get(name) or _learned(name)
        if lower not in named:
            named[lower] = value.decode("latin-1")
        if fate == _FORWARDED:
            lines += (name, b": ", value, b"\r\n")
        elif fate == _CREDENTIAL:
            credentials += (name, b": ", value, b"\r\n")
    connection = named.get("connection")
    if connection is not None and connection.lower() not in _COMMON_CONNECTION:
        kept = _without_listed(headers)
        if len(kept) < len(headers):
            return read_head(kept)
    return RequestHead(named, b"".join(lines), b"".join(credentials))


def split_target(target: bytes) -> tuple[bytes, bytes]:
    """Return path and query (with its `?`) of a request's target, origin or absolute form.

    Raises `Refused` for anything else.
    """
    if not target.startswith(b"/"):
        target = _origin_form(target)
    path, mark, query = target.partition(b"?")
    return path, mark + query


def _origin_form(target: bytes) -> bytes:
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError as error:
        raise Refused(400, "the request's target is no path; send '/v1/...'") from error
    path: bytes | None = url.path
    if not path:
        raise Refused(400, "the request's target has no path; send '/v1/...'")
    query: bytes | None = url.query
    return path if query is None else path + b"?" + query


def _learned(name: bytes) -> tuple[str, int]:
    lower = name.decode("latin-1").lower()
    fate = (
        _DROPPED
        if lower in _NOT_FORWARDED
        else _CREDENTIAL
        if lower in _CREDENTIALS
        else _FORWARDED
    )
    if len(_known) < _MAX_KNOWN:
        _known[name] = lower, fate
    return lower, fate


def _without_listed(headers: Headers) -> Headers:
    """Leave out what `Connection` names, and itself: it is for the next hop alone."""
    listed = {b"connection", *_listed(headers)}
    return [pair for pair in headers if pair[0].lower() not in listed]


def _listed(headers: Headers) -> Iterable[bytes]:
    for name, value in headers:
        if name.lower() == b"connection":
            yield from (word.strip().lower() for word in value.split(b","))
