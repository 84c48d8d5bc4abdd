"""Request bodies, bounded, and only where they say they are JSON."""

import asyncio
from dataclasses import dataclass

from starlette.requests import Request

from warmturn.engine.refusals import BODY_TIMEOUT, BODY_TOO_LARGE
from warmturn.errors import InvalidRequest

__all__ = ["BodyBounds", "read_body"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyBounds:
    """How large a body may be, and how long the whole of it may take to come."""

    max_bytes: int
    timeout_s: float


async def read_body(request: Request, bounds: BodyBounds) -> bytes:
    """Return the body.

    Raises `InvalidRequest`: 413 before more than `bounds.max_bytes` are kept, 408 when it is
    not there after `bounds.timeout_s`, 400 for another content type than JSON.

    Insisting on the content type also keeps web pages out: a browser sends JSON to another
    origin only after asking, and this server never agrees.
    """
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise InvalidRequest(
            f"the content type is {kind[:80]!r}; send the header content-type: application/json"
        )
    _check_size(int(request.headers.get("content-length", "0")), bounds.max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(bounds.timeout_s):
            async for chunk in request.stream():
                body += chunk
                _check_size(len(body), bounds.max_bytes)
    except TimeoutError as error:
        raise InvalidRequest(
            f"{len(body)} bytes of the body came in {bounds.timeout_s:g} s and it is not "
            "complete; send it faster",
            code=BODY_TIMEOUT,
        ) from error
    return bytes(body)


def _check_size(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise InvalidRequest(
            f"the body has {num_bytes} bytes or more, the limit is {max_bytes}; "
            "send less, or raise the server's limit",
            code=BODY_TOO_LARGE,
        )
