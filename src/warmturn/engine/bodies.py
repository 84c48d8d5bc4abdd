"""Request bodies, bounded, and only where they say they are JSON."""

from starlette.requests import Request

from warmturn.engine.refusals import BODY_TOO_LARGE
from warmturn.errors import InvalidRequest

__all__ = ["read_body"]


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """Return the body. Raises `InvalidRequest` (413) before more than `max_bytes` are kept.

    Insisting on the content type also keeps web pages out: a browser sends JSON to another
    origin only after asking, and this server never agrees.
    """
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise InvalidRequest(
            f"the content type is {kind[:80]!r}; send the header content-type: application/json"
        )
    _check_size(int(request.headers.get("content-length", "0")), max_bytes)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        _check_size(len(body), max_bytes)
    return bytes(body)


def _check_size(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise InvalidRequest(
            f"the body has {num_bytes} bytes or more, the limit is {max_bytes}; "
            "send less, or raise the server's limit",
            code=BODY_TOO_LARGE,
        )
