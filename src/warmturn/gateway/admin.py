"""The admin port: liveness, readiness, metrics, the sessions API, and changes while running.

An ordinary ASGI application, on a port of its own, so that nothing of it can be reached through the
data path. No answer holds a prompt, a salt or a key.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from warmturn import __version__
from warmturn.errors import CallerError, InvalidInput
from warmturn.gateway.admin_guard import AdminGuard, error_response
from warmturn.gateway.config import ReplicaPart
from warmturn.gateway.config_file import part_of
from warmturn.gateway.explaining import call_of, explanation_data
from warmturn.gateway.gateway_metrics import GatewayMetrics
from warmturn.gateway.membership import Member, Membership
from warmturn.gateway.recent import RecentDecisions
from warmturn.gateway.steering import GatewaySteering
from warmturn.gateway.turns import Refused
from warmturn.session.identity import identify

__all__ = ["AdminParts", "create_admin_app"]

MAX_BODY_BYTES = 16 * 2**20
"""A request to explain may be as large as one to serve."""
_FROM_FILE_ONLY = ("api_key_env", "api_key_file", "ca_file")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdminParts:
    """What the admin port shows and changes."""

    steering: GatewaySteering
    membership: Membership
    recent: RecentDecisions
    metrics: GatewayMetrics
    reload: Callable[[], Awaitable[dict[str, Any]]]
    """Reads the configuration file again; returns what changed."""
    is_ready: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic


def create_admin_app(parts: AdminParts, *, token: str | None) -> Starlette:
    """Return the application. Without `token` it answers loopback names only."""
    admin = _Admin(parts)
    return Starlette(
        routes=[
            Route("/health", admin.health),
            Route("/ready", admin.ready),
            Route("/metrics", admin.metrics),
            Route("/warmturn/sessions/{session}", admin.session),
            Route("/warmturn/decisions", admin.decisions),
            Route("/warmturn/shadow", admin.shadow),
            Route("/warmturn/explain", admin.explain, methods=["POST"]),
            Route("/warmturn/reload", admin.reload, methods=["POST"]),
            Route("/warmturn/replicas", admin.replicas, methods=["GET"]),
            Route("/warmturn/replicas", admin.add, methods=["POST"]),
            Route("/warmturn/replicas/{name:path}/drain", admin.drain, methods=["POST"]),
            Route("/warmturn/replicas/{name:path}/undrain", admin.undrain, methods=["POST"]),
            Route("/warmturn/replicas/{name:path}", admin.remove, methods=["DELETE"]),
        ],
        middleware=[Middleware(AdminGuard, token=token)],
        exception_handlers={
            Refused: _refused,
            CallerError: _refused,
            HTTPException: _http_error,
        },
    )


class _Admin:
    """The handlers."""

    def __init__(self, parts: AdminParts) -> None:
        self._parts = parts

    async def health(self, _: Request) -> Response:
        """GET /health: the process lives. Nothing else is said, as nobody is asked for a token."""
        return _json({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """GET /ready: requests would be served; 503 while draining or without a replica."""
        alive = self._parts.membership.num_alive
        is_ready = self._parts.is_ready() and alive > 0
        data = {"is_ready": is_ready, "num_alive_replicas": alive, "version": __version__}
        return _json(data, status=200 if is_ready else 503)

    async def metrics(self, _: Request) -> Response:
        """GET /metrics."""
        text = generate_latest(self._parts.metrics.registry)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    async def session(self, request: Request) -> Response:
        """GET /warmturn/sessions/{session}: where it is, and its last turns.

        `session` is a key of `/warmturn/decisions`, or an id that clients send, with `?tenant=`
        where identities are configured.
        """
        parts, now = self._parts, self._parts.clock()
        given = request.path_params["session"]
        by_id = identify({"x-session-id": given}, {}, tenant=request.query_params.get("tenant"))
        for key in (given, by_id.key):
            status = parts.steering.session(key, now)
            turns = list(parts.recent.of_session(key))
            if status is not None or turns:
                place = None if status is None else _flat(asdict(status))
                return _json({"session": key, "place": place, "turns": turns})
        raise HTTPException(
            404, "no such session is known here: it is idle for hours, or elsewhere"
        )

    async def decisions(self, request: Request) -> Response:
        """GET /warmturn/decisions?session=&replica=&limit=: the last ones, newest first."""
        query = request.query_params
        limit = query.get("limit", "50")
        if not limit.isdecimal():
            raise InvalidInput(f"limit {limit!r} is no whole number")
        found = self._parts.recent.listed(
            session=query.get("session"), replica=query.get("replica"), limit=int(limit)
        )
        return _json({"decisions": found})

    async def shadow(self, _: Request) -> Response:
        """GET /warmturn/shadow: what the shadow policy would have done, and gained."""
        return _json({"shadows": self._parts.metrics.shadow_report()})

    async def explain(self, request: Request) -> Response:
        """POST /warmturn/explain: what would be done with a request, and why; nothing is done."""
        asked, now = await _body(request, _Asked), self._parts.clock()
        call = call_of(bytes(asked.body), asked.path, asked.headers, now)
        return _json(explanation_data(self._parts.steering.explain(call, now)))

    async def reload(self, _: Request) -> Response:
        """POST /warmturn/reload: read the configuration file again."""
        return _json(await self._parts.reload())

    async def replicas(self, _: Request) -> Response:
        """GET /warmturn/replicas: all members, unknown states included."""
        parts, now = self._parts, self._parts.clock()
        sources: dict[str, list[dict[str, Any]]] = {}
        for status in parts.steering.replicas(now):
            sources.setdefault(status.source.replica, []).append(_flat(asdict(status)))
        members = parts.membership.members.values()
        found = [{**member_data(m, now), "ranks": sources.get(m.replica, [])} for m in members]
        return _json({"replicas": found})

    async def add(self, request: Request) -> Response:
        """POST /warmturn/replicas: one more, with the keys of the configuration file."""
        table = await _body(request, dict[str, Any])
        for key in _FROM_FILE_ONLY:
            if key in table:
                raise InvalidInput(
                    f"{key} can be given in the configuration file only: whoever may ask here must "
                    "not be able to send this machine's secrets elsewhere"
                )
        member = self._parts.membership.add(part_of(ReplicaPart, table))
        return _json(member_data(member, self._parts.clock()), status=201)

    async def remove(self, request: Request) -> Response:
        """DELETE /warmturn/replicas/{name}: at once; requests in flight end as they can."""
        self._parts.membership.remove(_known(self._parts, request))
        return _json({"removed": request.path_params["name"]})

    async def drain(self, request: Request) -> Response:
        """POST /warmturn/replicas/{name}/drain[?then=remove]: hand its sessions over."""
        then = request.query_params.get("then")
        if then not in (None, "remove"):
            raise InvalidInput(f"then={then!r} was asked for; only `remove` is there")
        name = _known(self._parts, request)
        self._parts.membership.drain(name, then_remove=then is not None)
        return _json({"draining": name})

    async def undrain(self, request: Request) -> Response:
        """POST /warmturn/replicas/{name}/undrain: take sessions again."""
        name = _known(self._parts, request)
        self._parts.membership.undrain(name)
        return _json({"serving": name})


def member_data(member: Member, now: float) -> dict[str, Any]:
    """Return what is known of a member, its keys left out."""
    health, part = member.health, member.part
    return {
        "name": member.replica,
        "url": part.url,
        "state": health.state,
        "why": health.why,
        "in_state_s": max(0.0, now - health.since_s),
        "is_draining": member.drain_start_s is not None,
        "is_leaving": member.is_leaving,
        "num_breaker_openings": health.num_opened,
        "models": list(member.models),
        "weight": part.weight,
        "has_events": part.events is not None,
        "metrics": None if member.metrics is None else asdict(member.metrics),
    }


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """A request to explain."""

    body: msgspec.Raw
    path: str = "/v1/chat/completions"
    headers: dict[str, str] = {}


async def _body(request: Request, kind: type[T]) -> T:
    """Read a JSON body. Raises `InvalidInput`."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise InvalidInput(f"the body is larger than {MAX_BODY_BYTES:,} bytes")
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise InvalidInput("the body has to be JSON: Content-Type: application/json")
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the body is not what is asked for here: {error}") from error


def _known(parts: AdminParts, request: Request) -> str:
    name: str = request.path_params["name"]
    if name not in parts.membership.members:
        there = ", ".join(sorted(parts.membership.members)) or "none"
        raise HTTPException(404, f"there is no replica {name!r}; there are: {there}")
    return name


def _flat(status: dict[str, Any]) -> dict[str, Any]:
    """Put a source's two parts in its place."""
    source = status.pop("source")
    return {"replica": source["replica"], "rank": source["rank"], **status}


def _json(data: object, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status_code=status, media_type="application/json")


async def _refused(_: Request, error: Exception) -> Response:
    return error_response(error.status if isinstance(error, Refused) else 400, str(error))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, error.detail)
