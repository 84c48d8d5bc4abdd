"""An embedded replica put together: model, pool, replica, loop, server."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from warmturn.blocks.schemes import scheme_named
from warmturn.cache.pool import Pool
from warmturn.engine.executor import Device, Dtype, Executor
from warmturn.engine.loop import Engine
from warmturn.engine.metrics import EngineMetrics
from warmturn.engine.publisher import EventPublisher
from warmturn.engine.server import create_app
from warmturn.errors import InvalidInput
from warmturn.render.renderer import Renderer
from warmturn.replica.replica import Replica
from warmturn.session.continuation import Continuations

__all__ = ["EngineOptions", "EngineServer"]

CONTINUATION_TOKENS = 4_000_000
"""Most token ids exact continuation remembers: 16 MB of ids, some hundred conversations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What `warmturn engine` takes; see its help for the meaning and the defaults."""

    model_dir: Path
    model_name: str
    dtype: Dtype
    device: Device
    threads: int | None
    num_blocks: int
    block_size: int
    max_model_len: int | None
    max_running: int
    max_body_bytes: int
    prefix_caching: bool
    exact_continuation: bool
    hash_scheme: str
    kv_events: str | None
    kv_events_replay: str | None
    kv_events_topic: str


class EngineServer:
    """One replica behind HTTP, from construction to shutdown."""

    def __init__(self, options: EngineOptions) -> None:
        """Load the model and allocate the pool. Raises `InvalidInput`, `UnsupportedModel`."""
        self._options = options
        scheme = scheme_named(options.hash_scheme)
        self._executor = Executor(
            options.model_dir,
            num_blocks=options.num_blocks,
            block_size=options.block_size,
            dtype=options.dtype,
            device=options.device,
            num_threads=options.threads,
        )
        config = self._executor.config
        self._replica = Replica(
            Pool(options.num_blocks, options.block_size),
            scheme=scheme,
            model=options.model_name,
            max_model_len=min(
                options.max_model_len or config.max_position_embeddings,
                config.max_position_embeddings,
            ),
            max_running=options.max_running,
            prefix_caching=options.prefix_caching,
            announce=options.kv_events is not None,
        )
        self._publisher = self._start_publisher()
        self._metrics = EngineMetrics(
            options.model_name,
            max_model_len=self._replica.max_model_len,
            cache_config={
                "enable_prefix_caching": str(options.prefix_caching),
                "prefix_caching_hash_algo": options.hash_scheme,
            },
        )
        self._engine = Engine(
            self._replica,
            self._executor,
            eos_token_ids=frozenset(config.eos_token_ids),
            observer=self._metrics,
            publish=None if self._publisher is None else self._publisher.publish,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What `--json` says, but for the address."""
        memory = self._executor.kv.tensor
        return {
            "model": self._options.model_name,
            "pid": os.getpid(),
            "dtype": str(self._executor.dtype).removeprefix("torch."),
            "num_blocks": self._options.num_blocks,
            "block_size": self._options.block_size,
            "max_model_len": self._replica.max_model_len,
            "pool_bytes": memory.numel() * memory.element_size(),
        }

    async def serve(self, listener: socket.socket, *, on_ready: Callable[[], None]) -> None:
        """Answer requests on `listener` until told to stop (SIGINT, SIGTERM)."""
        await self._engine.start()
        config = uvicorn.Config(self._app(), log_level="warning", timeout_graceful_shutdown=5)
        server = _Uvicorn(config, on_ready)
        try:
            await server.serve(sockets=[listener])
        finally:
            await self._engine.stop()
            if self._publisher is not None:
                self._publisher.close()

    def _app(self) -> Starlette:
        options = self._options
        remembered = Continuations(max_tokens=CONTINUATION_TOKENS)
        return create_app(
            self._engine,
            Renderer.from_directory(options.model_dir),
            model_name=options.model_name,
            metrics=self._metrics,
            continuations=remembered if options.exact_continuation else None,
            max_body_bytes=options.max_body_bytes,
            dev_endpoints=True,
        )

    def _start_publisher(self) -> EventPublisher | None:
        options = self._options
        if options.kv_events is None:
            if options.kv_events_replay is not None:
                raise InvalidInput("--kv-events-replay needs --kv-events ENDPOINT as well")
            return None
        return EventPublisher(
            options.kv_events,
            replay_endpoint=options.kv_events_replay,
            topic=options.kv_events_topic,
        )


class _Uvicorn(uvicorn.Server):
    """Says when it listens; until then a client would wait in the socket's backlog."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()
