"""The OpenAI-compatible HTTP server of one replica, with vLLM's extensions.

A request's way: body -> `formats` -> `Prompts` (text, ids) -> `TokenEngine` (tokens) ->
`deltas` (text again) -> `Answer` (JSON) -> one body, or events. The engine knows no text,
the formats no engine; this file only joins them. docs/reference/api.md lists what is
accepted and what differs from vLLM.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import ParamSpec, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from warmturn import __version__
from warmturn.engine.api import TokenEngine
from warmturn.engine.bodies import read_body
from warmturn.engine.disconnect import while_connected
from warmturn.engine.guard import Guard
from warmturn.engine.metrics import EngineMetrics
from warmturn.engine.prompts import Prompt, Prompts, engine_request
from warmturn.engine.refusals import HANDLERS, MODEL_NOT_FOUND, json_response
from warmturn.engine.reply import Delta, all_of, deltas, next_of, reply_reader
from warmturn.engine.responses import Answer, ChatShape, CompletionShape, Shape
from warmturn.engine.sse import EventStream
from warmturn.errors import InvalidRequest
from warmturn.formats import (
    GenerateRequest,
    Generation,
    chat_request,
    completion_request,
    detokenize_request,
    ignored_fields,
    read_json,
    tokenize_request,
)
from warmturn.formats.body import JsonObject
from warmturn.render.renderer import Renderer
from warmturn.session.continuation import Continuations

__all__ = ["create_app"]

logger = logging.getLogger(__name__)

DEFAULT_MAX_BODY_BYTES = 16 * 2**20
"""A million token ids written as JSON take about 7 MB."""
DEFAULT_MAX_CONCURRENT_REQUESTS = 256
"""What vLLM lets run at once by default, waiting ones apart."""
MAX_NAMES_NOTED = 256
"""Ignored field names come from clients: remember only so many."""

P = ParamSpec("P")
T = TypeVar("T")


def create_app(
    engine: TokenEngine,
    renderer: Renderer,
    *,
    model_name: str,
    metrics: EngineMetrics,
    continuations: Continuations | None = None,
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    max_concurrent_requests: int = DEFAULT_MAX_CONCURRENT_REQUESTS,
    dev_endpoints: bool = False,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC).astimezone(),
) -> Starlette:
    """Return the ASGI application that serves `engine` under `model_name`.

    `continuations` turns exact continuation on. `dev_endpoints` adds /reset_prefix_cache,
    which any client could use against all others. `clock` is in seconds; `now` is what
    templates see as the date.
    """
    prompts = Prompts(renderer, continuations=continuations, metrics=metrics, now=now)
    server = _Server(
        engine, prompts, model_name, metrics=metrics, max_body_bytes=max_body_bytes, clock=clock
    )
    metrics.watch(engine.stats)
    return Starlette(
        routes=_routes(server, dev_endpoints=dev_endpoints),
        middleware=[
            Middleware(Guard, max_concurrent_requests=max_concurrent_requests, metrics=metrics)
        ],
        exception_handlers=dict(HANDLERS),
        lifespan=server.lifespan,
    )


def _routes(server: "_Server", *, dev_endpoints: bool) -> list[Route]:
    routes = [
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/v1/completions", server.completion, methods=["POST"]),
        Route("/v1/models", server.models),
        Route("/tokenize", server.tokenize, methods=["POST"]),
        Route("/detokenize", server.detokenize, methods=["POST"]),
        Route("/health", server.health),
        Route("/version", server.version),
        Route("/metrics", server.metrics),
    ]
    if dev_endpoints:
        routes.append(Route("/reset_prefix_cache", server.reset_prefix_cache, methods=["POST"]))
    return routes


class _Server:
    """The handlers. Rendering and tokenising happen in one thread of their own, in order."""

    def __init__(
        self,
        engine: TokenEngine,
        prompts: Prompts,
        model_name: str,
        *,
        metrics: EngineMetrics,
        max_body_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._prompts = prompts
        self._tokenizer = prompts.tokenizer
        self._model_name = model_name
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes
        self._clock = clock
        self._started_s = prompts.now_s()
        self._noted_names: set[str] = set()
        # One thread, so that a long prompt does not hold up other replies' tokens, and so
        # that a reply is remembered before the next turn's prompt is looked up.
        self._text_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="warmturn-text")

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Stop the thread when the server stops."""
        yield
        self._text_thread.shutdown(wait=False, cancel_futures=True)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._generate(request, chat_request, ChatShape())

    async def completion(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._generate(request, completion_request, CompletionShape())

    async def models(self, _: Request) -> Response:
        """GET /v1/models."""
        model = {
            "id": self._model_name,
            "object": "model",
            "created": int(self._started_s),
            "owned_by": "warmturn",
            "root": self._model_name,
            "parent": None,
            "max_model_len": self._engine.max_model_len,
        }
        return json_response({"object": "list", "data": [model]})

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize: the ids with which a request of this prompt would be served."""
        wanted = tokenize_request(await self._body(request))
        served = self._prompts.served_ids
        token_ids = (await self._in_text_thread(served, wanted.prompt, wanted.cache_salt)).tolist()
        answer: JsonObject = {
            "count": len(token_ids),
            "max_model_len": self._engine.max_model_len,
            "tokens": token_ids,
            "token_strs": None,
        }
        if wanted.return_token_strs:
            answer["token_strs"] = [self._tokenizer.token_text(token_id) for token_id in token_ids]
        return json_response(answer)

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize, special tokens shown."""
        token_ids = detokenize_request(await self._body(request)).tokens
        self._prompts.check_ids(token_ids, param="tokens")
        decode = partial(self._tokenizer.decode, skip_special_tokens=False)
        return json_response({"prompt": await self._in_text_thread(decode, token_ids)})

    async def health(self, _: Request) -> Response:
        """GET /health: 503 once the engine has ended, so that a balancer looks elsewhere."""
        return Response(status_code=200 if self._engine.failure is None else 503)

    async def version(self, _: Request) -> Response:
        """GET /version."""
        return json_response({"version": __version__})

    async def metrics(self, _: Request) -> Response:
        """GET /metrics."""
        text = generate_latest(self._metrics.registry)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    async def reset_prefix_cache(self, _: Request) -> Response:
        """POST /reset_prefix_cache."""
        return json_response({"success": await self._engine.reset_prefix_cache()})

    async def _generate(
        self, request: Request, read: Callable[[JsonObject], GenerateRequest], shape: Shape
    ) -> Response:
        body = await self._body(request)
        wanted = read(body)
        self._note_ignored(body)
        self._check_model(wanted.generation)
        prompt = await self._in_text_thread(self._prompts.build, wanted)
        answer = self._answer(wanted, prompt, shape)
        reply = self._reply(wanted, prompt, answer.id)
        if not wanted.generation.stream:
            parts = await while_connected(request.receive, all_of(reply))
            return json_response(answer.whole(parts))
        # What the engine refuses must be known before the status line is sent.
        first = await while_connected(request.receive, next_of(reply))
        return EventStream(answer, first, reply)

    def _answer(self, wanted: GenerateRequest, prompt: Prompt, shape: Shape) -> Answer:
        return Answer(
            shape,
            id=f"{shape.id_prefix}-{uuid.uuid4().hex}",
            created=int(self._prompts.now_s()),
            model_name=self._model_name,
            prompt_token_ids=prompt.token_ids,
            generation=wanted.generation,
            logprobs=wanted.num_logprobs is not None,
            tokenizer=self._tokenizer,
        )

    async def _reply(
        self, wanted: GenerateRequest, prompt: Prompt, request_id: str
    ) -> AsyncGenerator[Delta, None]:
        """Yield the reply's deltas; before the last one it is remembered whole."""
        source = deltas(
            self._engine,
            engine_request(wanted, prompt, request_id),
            reply_reader(wanted.generation, self._tokenizer),
            metrics=self._metrics,
            clock=self._clock,
        )
        parts = []
        async with aclosing(source):
            async for delta in source:
                parts.append(delta)
                if delta.finish_reason is not None:
                    await self._in_text_thread(self._prompts.remember, prompt, parts)
                yield delta

    async def _body(self, request: Request) -> JsonObject:
        return read_json(await read_body(request, max_bytes=self._max_body_bytes))

    async def _in_text_thread(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._text_thread, call)

    def _check_model(self, generation: Generation) -> None:
        if generation.model not in (None, self._model_name):
            raise InvalidRequest(
                f"model {generation.model[:80]!r} is not served here; ask for {self._model_name!r}",
                param="model",
                code=MODEL_NOT_FOUND,
            )

    def _note_ignored(self, body: JsonObject) -> None:
        names = [name for name in ignored_fields(body) if name not in self._noted_names]
        if names and len(self._noted_names) + len(names) <= MAX_NAMES_NOTED:
            self._noted_names.update(names)
            logger.debug("ignored unknown fields: %s", ", ".join(repr(name[:40]) for name in names))
