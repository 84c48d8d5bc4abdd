"""The gateway as one process: data path, steering, members, observers and admin port, wired.

async with Gateway(config) as gateway:      listens, and has asked every replica once
await stopped.wait()
leaving it drains
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import fields
from typing import Any, Self

import msgspec
import uvicorn

from warmturn.errors import InvalidInput
from warmturn.gateway.admin import AdminParts, create_admin_app
from warmturn.gateway.admin_guard import check_binding
from warmturn.gateway.config import Config, IdentityPart, ReplicaPart
from warmturn.gateway.data_path import DataPath
from warmturn.gateway.decision_log import DecisionLogFile
from warmturn.gateway.fleet_view import FleetView
from warmturn.gateway.gateway_gauges import gauges_of
from warmturn.gateway.gateway_metrics import GatewayMetrics
from warmturn.gateway.membership import Membership
from warmturn.gateway.prompt_tokens import PromptTokens
from warmturn.gateway.recent import RecentDecisions
from warmturn.gateway.replica_urls import first_line
from warmturn.gateway.served_models import ServedModel
from warmturn.gateway.steering import AdmissionLimit, GatewaySteering
from warmturn.render.renderer import Renderer
from warmturn.router import policy_named
from warmturn.session.tenant import IdentityRule, SaltKey, SaltRule

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)

DRAIN_S = 25.0
"""For requests in flight at the end: orchestrators kill after 30 seconds by default."""
_FLUSH_S = 0.5
_RELOADABLE = frozenset({"replicas", "health"})


class Gateway:
    """One gateway, from its configuration to its end."""

    def __init__(
        self,
        config: Config,
        *,
        own_replicas: tuple[ReplicaPart, ...] = (),
        load_config: Callable[[], Config] | None = None,
    ) -> None:
        """`own_replicas` are not in the configuration; `load_config` reads it again.

        Raises `InvalidInput` for whatever of the configuration cannot be used, before anything
        listens.
        """
        self._config, self._own, self._load_config = config, own_replicas, load_config
        admin = config.admin
        what = "admin.token_file"
        self._token = None if admin.token_file is None else first_line(admin.token_file, what=what)
        check_binding(admin.host, self._token)
        unix_offset_s = time.time() - time.monotonic()
        self.metrics = GatewayMetrics()
        self._recent = RecentDecisions(unix_offset_s=unix_offset_s)
        self._prompts: list[PromptTokens] = []
        routing, admission = config.routing, config.admission
        self.steering = GatewaySteering(
            policy_named(routing.policy),
            shadow=None if routing.shadow is None else policy_named(routing.shadow),
            models=self._models_of(config),
            salts=_salts(config.identity),
            session_header=routing.session_header,
            limit=AdmissionLimit(
                admission.max_running, admission.max_running_per_replica, admission.retry_after_s
            ),
        )
        self._fleet = FleetView(self.steering, config.limits, drain_s=config.health.drain_s)
        self.membership = Membership(self._fleet, config.health)
        self.membership.check(self._all_replicas(config))
        for observer in (self.metrics, self._recent, self.membership):
            self.steering.add_observer(observer)
        self._log = _decision_log(config, unix_offset_s)
        if self._log is not None:
            self.steering.add_observer(self._log)
        self.data_path = DataPath(
            self.steering,
            self._fleet.pools,
            config.limits,
            allowed_paths=config.listen.allowed_paths,
            local={b"/v1/models": self._models},
        )
        self.metrics.watch_refusals(lambda: self.steering.refusals)
        self.metrics.watch(
            gauges_of(self.steering, self.membership, self.data_path, self._log, time.monotonic)
        )
        self._stack = AsyncExitStack()
        self._is_ready = False
        self.port = self.admin_port = 0

    async def __aenter__(self) -> Self:
        """Listen on both ports and ask every replica once. Raises `InvalidInput`."""
        async with AsyncExitStack() as stack:
            if self._log is not None:
                stack.callback(self._log.close)
                await stack.enter_async_context(_repeated(_FLUSH_S, self._log.flush))
            for prompts in self._prompts:
                stack.callback(prompts.close)
            self.admin_port = await stack.enter_async_context(self._admin())
            listen = self._config.listen
            stack.push_async_callback(self.data_path.close)
            stack.push_async_callback(self._fleet.close)
            stack.push_async_callback(self.membership.close)
            await self.membership.start(self._all_replicas(self._config))
            self.port = await self.data_path.start(listen.host, listen.port)
            stack.push_async_callback(self._drain)
            self._is_ready = True
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Let what is under way end, then stop."""
        await self._stack.aclose()

    @property
    def warnings(self) -> list[str]:
        """What an operator should know of this configuration."""
        identity, found = self._config.identity, []
        if identity.header is None:
            found.append(
                "no identity is configured: all callers share one cache, and can learn from its "
                "speed what others asked; see --identity-header"
            )
        elif identity.salt_key_file is None:
            found.append(
                "no salt key file: this gateway's salts are its own and end with it; give the "
                "same --salt-key-file to every gateway"
            )
        return found

    @property
    def facts(self) -> dict[str, Any]:
        """What `--json` says."""
        listen, admin, routing = self._config.listen, self._config.admin, self._config.routing
        return {
            "url": f"http://{_shown(listen.host)}:{self.port}",
            "admin_url": f"http://{_shown(admin.host)}:{self.admin_port}",
            "policy": routing.policy,
            "shadow": routing.shadow,
            "models": sorted(self.steering.served_models()),
            "replicas": [
                {"name": m.replica, "url": m.part.url, "state": str(m.health.state)}
                for m in self.membership.members.values()
            ],
        }

    async def reload(self) -> dict[str, Any]:
        """Read the configuration again and take over what can change while running.

        Raises `InvalidInput`, and changes nothing, where other keys were changed too.
        """
        if self._load_config is None:
            raise InvalidInput("there is no configuration file to read again; start with --config")
        new = self._load_config()
        fixed = [
            part.name
            for part in fields(Config)
            if part.name not in _RELOADABLE
            and getattr(new, part.name) != getattr(self._config, part.name)
        ]
        if fixed:
            raise InvalidInput(
                f"{', '.join(fixed)} cannot change while running, nothing was changed; "
                f"restart, or change {', '.join(sorted(_RELOADABLE))} only"
            )
        changed = await self.membership.reload(self._all_replicas(new), new.health)
        self._config = new
        logger.info("configuration read again: %s", changed)
        return changed

    def _all_replicas(self, config: Config) -> tuple[ReplicaPart, ...]:
        return (*config.replicas, *self._own)

    def _models_of(self, config: Config) -> list[ServedModel]:
        """Load the tokenizers. Raises `InvalidInput` for a directory that has none."""
        found = []
        for part in config.models:
            prompts = None
            if part.tokenizer is not None:
                prompts = PromptTokens(Renderer.from_directory(part.tokenizer))
                self._prompts.append(prompts)
            found.append(ServedModel(part.name, part.aliases, prompts))
        return found

    def _models(self) -> bytes:
        """Answer `/v1/models` with what clients may ask for."""
        data = [
            {"id": name, "object": "model", "owned_by": "warmturn"}
            for name in sorted(self.steering.served_models())
        ]
        return msgspec.json.encode({"object": "list", "data": data})

    async def _drain(self) -> None:
        self._is_ready = False
        if not await self.data_path.drain(DRAIN_S):
            logger.warning("requests were still in flight after %.0f s and are cut", DRAIN_S)
        for one in self.metrics.shadow_report():
            logger.info(
                "shadow policy %s agreed in %d of %d decisions, and would have found %+d tokens",
                *(one["policy"], one["num_agreed"], one["num_decisions"], one["gained_tokens"]),
            )

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[int]:
        """Serve the admin port; yields its number."""
        admin = self._config.admin
        app = create_admin_app(
            AdminParts(
                self.steering,
                self.membership,
                self._recent,
                self.metrics,
                reload=self.reload,
                is_ready=lambda: self._is_ready,
            ),
            token=self._token,
        )
        listener = _listener(admin.host, admin.port)
        server = _Uvicorn(uvicorn.Config(app, log_level="warning", lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


class _Uvicorn(uvicorn.Server):
    """Leaves the process's signals alone: they are the gateway's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _salts(part: IdentityPart) -> SaltRule:
    if part.header is None:
        for name in ("scheme", "salt_key_file"):
            if getattr(part, name) is not None:
                raise InvalidInput(f"identity.{name} is given without identity.header; give both")
        return SaltRule()
    if part.salt_key_file is None:
        key = SaltKey(secrets.token_bytes(32))
    else:
        try:
            key = SaltKey(part.salt_key_file.read_bytes().strip())
        except OSError as error:
            raise InvalidInput(
                f"identity.salt_key_file {part.salt_key_file}: {error.strerror}; name a file with "
                "at least 16 random bytes"
            ) from error
    rule = IdentityRule(part.header, part.scheme)
    return SaltRule(key, rule, anonymous=part.anonymous, per_user=part.per_user)


def _decision_log(config: Config, unix_offset_s: float) -> DecisionLogFile | None:
    part = config.decision_log
    if part.file is None:
        return None
    return DecisionLogFile(
        part.file,
        max_bytes=part.max_bytes,
        num_files=part.num_files,
        unix_offset_s=unix_offset_s,
    )


def _listener(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `InvalidInput` where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise InvalidInput(
            f"cannot listen on {host} port {port} for admin: {error}; "
            "stop what listens there, or choose another --admin-port or --admin-host"
        ) from error


@asynccontextmanager
async def _repeated(seconds: float, work: Callable[[], None]) -> AsyncIterator[None]:
    """Do `work` in a thread every so often; once at a time."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(work)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _shown(host: str) -> str:
    """Return what a client on this machine puts into a URL."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"[{host}]" if ":" in host else host
