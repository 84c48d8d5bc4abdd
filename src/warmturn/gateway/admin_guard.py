"""Who may ask the admin port: whoever has the token, or, without one, programs on this machine.

A page in somebody's browser is on this machine, too, and can reach loopback: so without a token only
loopback names are answered (a rebound DNS name is none), and a request that says it comes from a web
page changes nothing.
"""

import hmac

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from warmturn.errors import InvalidInput

__all__ = ["AdminGuard", "check_binding", "error_response"]

LIVENESS = "/health"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class AdminGuard:
    """ASGI middleware; only liveness passes without a look at the caller."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 or 403."""
        refused = self._refusal(scope) if scope["type"] == "http" else None
        if refused is None:
            await self._app(scope, receive, send)
        else:
            await refused(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["path"] == LIVENESS:
            return None
        headers = Headers(scope=scope)
        if self._token is not None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            is_right = hmac.compare_digest(given.strip().encode(), self._token.encode())
            if scheme.lower() == "bearer" and is_right:
                return None
            return error_response(
                401,
                "the admin port asks for its token: Authorization: Bearer TOKEN",
                headers={"www-authenticate": "Bearer"},
            )
        if _host_of(headers.get("host", "")) not in _LOOPBACK:
            return error_response(403, "without a token only loopback names are answered here")
        if scope["method"] not in ("GET", "HEAD") and "origin" in headers:
            return error_response(403, "without a token no web page may change anything here")
        return None


def check_binding(host: str, token: str | None) -> None:
    """Raise `InvalidInput` for an address others can reach without a token."""
    if token is None and host not in _LOOPBACK and not host.startswith("127."):
        raise InvalidInput(
            f"the admin port would listen on {host} without authentication; "
            "give --admin-token-file FILE, or bind it to 127.0.0.1"
        )


def error_response(status: int, message: str, *, headers: dict[str, str] | None = None) -> Response:
    """Return an error as JSON."""
    body = msgspec.json.encode({"error": {"message": message}})
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def _host_of(authority: str) -> str:
    """Return the host of a `Host` header, without port and brackets."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0].lower()
