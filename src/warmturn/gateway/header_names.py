"""What becomes of a header, by its name: looked up once per spelling, then remembered.

Names and values go on as they were sent, one line each. What belongs to one connection, to framing
or to the gateway does not; credentials do only where the replica has no key of its own.
"""

__all__ = [
    "CREDENTIAL",
    "DROPPED",
    "FORWARDED",
    "FRAMING",
    "READ",
    "request_header",
    "response_header",
]

FORWARDED, CREDENTIAL, DROPPED, FRAMING, READ = range(5)
"""Fates. Of those the gateway reads itself, FRAMING stays here and READ goes on."""

_HOP_BY_HOP = frozenset(
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

_NOT_FORWARDED = _HOP_BY_HOP | {
    "http2-settings",
    "accept-encoding",  # usage could not be read from a compressed stream
    "x-data-parallel-rank",  # the router's to say
}
_FRAMING = frozenset({"connection", "content-length", "transfer-encoding", "host", "expect"})
_CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key"})
_FRAMING_OF_ANSWERS = frozenset({"content-length", "transfer-encoding"})
_READ_OF_ANSWERS = frozenset({"content-type", "content-encoding"})
_MAX_KNOWN = 4096
"""Of spellings remembered; a client that invents more is served slower."""

_requests: dict[bytes, tuple[str, int]] = {}
_responses: dict[bytes, tuple[str, int]] = {}


def request_header(name: bytes) -> tuple[str, int]:
    """Return a request header's name in lower case, and its fate."""
    known = _requests.get(name)
    if known is None:
        lower = name.decode("latin-1").lower()
        if lower in _FRAMING:
            fate = FRAMING
        elif lower in _NOT_FORWARDED:
            fate = DROPPED
        else:
            fate = CREDENTIAL if lower in _CREDENTIALS else FORWARDED
        known = _remembered(_requests, name, lower, fate)
    return known


def response_header(name: bytes) -> tuple[str, int]:
    """Return a response header's name in lower case, and its fate."""
    known = _responses.get(name)
    if known is None:
        lower = name.decode("latin-1").lower()
        if lower in _FRAMING_OF_ANSWERS:
            fate = FRAMING
        elif lower in _HOP_BY_HOP:
            fate = DROPPED
        else:
            fate = READ if lower in _READ_OF_ANSWERS else FORWARDED
        known = _remembered(_responses, name, lower, fate)
    return known


def _remembered(
    table: dict[bytes, tuple[str, int]], name: bytes, lower: str, fate: int
) -> tuple[str, int]:
    if len(table) < _MAX_KNOWN:
        table[name] = lower, fate
    return lower, fate
