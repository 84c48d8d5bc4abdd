"""Questions to a replica besides requests: is it well, what does it serve, how full is it."""

import ssl
from typing import Self

import httpx
import msgspec

from warmturn.errors import PeerError
from warmturn.gateway.metrics_reading import ReplicaMetrics, read_metrics
from warmturn.gateway.replica_urls import ReplicaUrl

__all__ = ["ReplicaClient"]

MAX_BYTES = 4 * 2**20
"""Of any answer; a metrics page has some hundred kilobytes."""
_NOT_THERE = 404


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class ReplicaClient:
    """Asks one replica. Every method takes as long as `timeout_s` at most."""

    def __init__(
        self,
        url: ReplicaUrl,
        *,
        api_key: str | None,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
        timeout_s: float,
    ) -> None:
        self._base = url.base
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._extensions = {} if server_hostname is None else {"sni_hostname": server_hostname}
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=timeout_s,
            verify=tls if tls is not None else False,
            trust_env=False,
            limits=httpx.Limits(max_connections=2, max_keepalive_connections=1),
        )

    async def __aenter__(self) -> Self:
        """Use it in an `async with` block."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def probe(self, path: str) -> str | None:
        """Return why the replica is not well, None where it is.

        An engine without that path answers 404: it answers, which has to do.
        """
        try:
            status, _ = await self._get(path)
        except PeerError as error:
            return str(error)
        return None if status < 400 or status == _NOT_THERE else f"status {status}"

    async def models(self) -> tuple[str, ...] | None:
        """Return the names it serves, None where it does not say."""
        try:
            _, body = await self._get("/v1/models")
            return tuple(m.id for m in msgspec.json.decode(body, type=_Models).data) or None
        except (PeerError, msgspec.MsgspecError):
            return None

    async def metrics(self) -> ReplicaMetrics | None:
        """Return what `/metrics` say, None where there are none."""
        try:
            status, body = await self._get("/metrics")
        except PeerError:
            return None
        return read_metrics(body.decode(errors="replace")) if status == httpx.codes.OK else None

    async def _get(self, path: str) -> tuple[int, bytes]:
        body = bytearray()
        try:
            request = self._http.build_request(
                "GET", self._base + path, extensions=self._extensions
            )
            response = await self._http.send(request, stream=True)
            try:
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > MAX_BYTES:
                        break
            finally:
                await response.aclose()
        except httpx.TimeoutException as error:
            raise PeerError("timeout") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise PeerError(
                "no connection" if _is_refused(error) else type(error).__name__
            ) from error
        return response.status_code, bytes(body)


def _is_refused(error: Exception) -> bool:
    return isinstance(error, httpx.ConnectError)
