"""An embedded replica put together: model, pool, replica, loop, server."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from warmturn.blocks.schemes import scheme_named
from warmturn.cache.pool import Pool
from warmturn.engine.executor import Device, Dtype, Executor
from warmturn.engine.heap import share_arenas
from warmturn.engine.loop import Engine
from warmturn.engine.metrics import EngineMetrics
from warmturn.engine.model_config import ModelConfig
from warmturn.engine.publisher import EventPublisher
from warmturn.engine.server import create_app
from warmturn.engine.tiering import Tiering, TierOptions, device_memory, fingerprint_of
from warmturn.errors import InvalidInput
from warmturn.render.renderer import Renderer
from warmturn.replica.replica import Replica
from warmturn.session.continuation import Continuations

__all__ = ["EngineOptions", "EngineServer"]

GRACE_S = 5
"""What requests in flight get at shutdown: a chat's usual next second or two, and no hang."""
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
    tiers: TierOptions = field(default_factory=TierOptions)


class EngineServer:
    """One replica behind HTTP, from construction to shutdown."""

    def __init__(self, options: EngineOptions) -> None:
        """Load the model and allocate the pool. Raises `InvalidInput`, `UnsupportedModel`."""
        self._options = options
        share_arenas(2)
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
        self._renderer = Renderer.from_directory(options.model_dir)
        _check_vocabulary(self._renderer, config, options.model_dir)
        self._tiering = self._open_tiers()
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
            tiers=None if self._tiering is None else self._tiering.manager,
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
            start_mover=None if self._tiering is None else self._tiering.start_mover,
        )
        if self._tiering is not None:
            self._metrics.watch_tiers(self._tiering.manager)

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
            "tiers": {} if self._tiering is None else self._tiering.facts,
        }

    def _open_tiers(self) -> Tiering | None:
        options, memory = self._options, self._executor.kv.tensor
        if not options.tiers.is_any:
            return None
        if not options.prefix_caching:
            raise InvalidInput(
                "tiers hold reusable blocks, and --no-prefix-caching reuses none; drop one of them"
            )
        fingerprint = fingerprint_of(
            options.model_dir,
            self._executor.config,
            model_name=options.model_name,
            dtype=self._executor.dtype,
            block_size=options.block_size,
            hash_scheme=options.hash_scheme,
        )
        block_bytes = memory[0].numel() * memory.element_size()
        return Tiering(options.tiers, device_memory(memory), fingerprint, block_bytes)

    async def serve(self, listener: socket.socket, *, on_ready: Callable[[], None]) -> None:
        """Answer requests on `listener` until told to stop (SIGINT, SIGTERM); then return.

        Requests in flight get `GRACE_S` seconds to end; socket files are removed.
        """
        config = uvicorn.Config(
            self._app(), log_level="warning", timeout_graceful_shutdown=2 * GRACE_S
        )
        server = _Uvicorn(config, on_ready=on_ready, on_grace_over=self._engine.stop)
        try:
            with _signals_to(server):
                await self._run(server, listener)
        finally:
            if self._publisher is not None:
                self._publisher.close()

    async def _run(self, server: uvicorn.Server, listener: socket.socket) -> None:
        try:
            await self._engine.start()
            await server.serve(sockets=[listener])
        finally:
            await self._engine.stop()

    def _app(self) -> Starlette:
        options = self._options
        remembered = Continuations(max_tokens=CONTINUATION_TOKENS)
        return create_app(
            self._engine,
            self._renderer,
            model_name=options.model_name,
            metrics=self._metrics,
            continuations=remembered if options.exact_continuation else None,
            max_body_bytes=options.max_body_bytes,
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


def _check_vocabulary(renderer: Renderer, config: ModelConfig, model_dir: Path) -> None:
    """Raise `InvalidInput` if the tokenizer makes ids that the model has no embedding for.

    The other way round is common: embeddings are padded.
    """
    if renderer.tokenizer.vocab_size > config.vocab_size:
        raise InvalidInput(
            f"{model_dir}: tokenizer.json has {renderer.tokenizer.vocab_size} tokens, the model "
            f"only {config.vocab_size} embeddings; they do not belong together"
        )


@contextmanager
def _signals_to(server: uvicorn.Server) -> Iterator[None]:
    """Let the usual two signals end `server`, a second SIGINT without waiting for anybody."""
    loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, server.handle_exit, number, None)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


class _Uvicorn(uvicorn.Server):
    """Says when it listens; until then a client would wait in the socket's backlog.

    At shutdown requests get `GRACE_S` to end by themselves. Then `on_grace_over` ends them
    with an answer; uvicorn would only cut their connections.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_ready: Callable[[], None],
        on_grace_over: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_grace_over = on_grace_over

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.create_task(self._end_requests_later())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end_requests_later(self) -> None:
        await asyncio.sleep(GRACE_S)
        await self._on_grace_over()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: uvicorn would raise them again when it is done.

        SIGTERM would then kill the process with the engine running and socket files in place.
        """
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()
