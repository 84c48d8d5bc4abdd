"""The driver of one replica: it owns clock, thread and queues; the replica decides.

plan -> executor.execute in its own thread -> complete -> tell everyone
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from warmturn.cache.events import AllBlocksCleared, CacheEvent, TierBlocksCleared
from warmturn.cache.transfers import Done, Order
from warmturn.engine.api import (
    Choice,
    EngineRequest,
    EngineStats,
    FinishReason,
    SamplingParams,
    TokenOutput,
)
from warmturn.errors import EngineFailure, PeerError
from warmturn.metrics import TurnMetrics
from warmturn.replica.replica import Progress, Replica, StepReport
from warmturn.replica.sequence import Submission
from warmturn.replica.step import Sampled, Step
from warmturn.types import HashWords, RequestId

__all__ = ["Engine", "EngineObserver", "StepExecutor", "TierMover"]

log = logging.getLogger(__name__)

Times: TypeAlias = npt.NDArray[np.float64]
"""Seconds, `[n]`."""

IDLE_CHECK_S = 1.0
"""Invariants are checked once each time the engine has idled this long."""
TIER_POLL_S = 0.005
"""While blocks are on their way and nothing can be computed: how often it is asked whether they
are late. When they arrive the loop is woken at once."""
RESET_WAIT_S = 2.0
"""How long emptying the cache waits for blocks that are being copied; a copy takes milliseconds."""
CHECKED_BLOCKS = 4096
"""Pools up to this size are checked when idle: about 0.1 s; larger ones would hold requests up."""


class StepExecutor(Protocol):
    """What computes a step; the real one is `engine.executor.Executor`."""

    def warm_up(self) -> None:
        """Do what the first step would otherwise wait for, such as compiling kernels."""
        ...

    def execute(self, step: Step, choices: Mapping[RequestId, Choice]) -> Sequence[Sampled]:
        """Compute keys and values of every work; choose a token for each that samples."""
        ...


class EngineObserver(Protocol):
    """What is told of steps and turns; the real one is `engine.metrics.EngineMetrics`."""

    def admitted(
        self, prompt_tokens: int, cached_tokens: int, loaded_tokens: Mapping[str, int]
    ) -> None:
        """Take note of a request's first admission; `loaded_tokens` by tier are in `cached_tokens`."""
        ...

    def finished(self, turn: TurnMetrics, finish_reason: FinishReason) -> None:
        """Take note of a request that ended, cancelled ones included (`abort`)."""
        ...

    def step(self, num_tokens: int) -> None:
        """Take note of a completed step."""
        ...

    def preempted(self, num_requests: int) -> None:
        """Take note of requests that gave up their blocks."""
        ...

    def evicted(self, lifetime_s: Times, idle_s: Times, reuse_gap_s: Times) -> None:
        """Take note of evicted and reused blocks; see `PoolChanges`."""
        ...


class TierMover(Protocol):
    """What carries out the replica's orders; the real one is `stores.mover.Mover`."""

    def submit(self, orders: Sequence[Order]) -> None:
        """Begin to carry orders out; returns at once."""
        ...

    def close(self) -> None:
        """Finish what was begun and let go of all stores."""
        ...


class _Generation:
    """One request as the loop sees it: how it samples, and the queue its outputs go to."""

    def __init__(self, request: EngineRequest, end_token_ids: frozenset[int]) -> None:
        sampling = request.sampling
        if sampling.temperature > 0 and sampling.seed is None:
            sampling = replace(sampling, seed=secrets.randbits(63))
        self.sampling: SamplingParams = sampling
        self.banned = tuple(sorted(end_token_ids))
        self.outputs: asyncio.Queue[TokenOutput | Exception] = asyncio.Queue()

    def choice(self, index: int) -> Choice:
        """Return how token number `index` of the reply is chosen."""
        banned = self.banned if index < self.sampling.min_tokens else ()
        return Choice(params=self.sampling, index=index, banned_token_ids=banned)


class Engine:
    """A replica that runs: submit requests, get tokens as steps complete.

    Everything but the executor runs on the event loop, so the replica needs no lock.
    The executor has one thread of its own: torch keeps a thread team per calling thread.
    """

    def __init__(
        self,
        replica: Replica,
        executor: StepExecutor,
        *,
        eos_token_ids: frozenset[int],
        observer: EngineObserver,
        publish: Callable[[Sequence[CacheEvent]], None] | None = None,
        start_mover: Callable[[Callable[[Done], None]], TierMover] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`publish` gets the KV events of each step when the replica announces them.

        `start_mover` is needed where the replica has tiers: called with a function that takes ends
        of orders from any thread.
        """
        self.max_model_len = replica.max_model_len
        self._replica = replica
        self._executor = executor
        self._eos_token_ids = eos_token_ids
        self._observer = observer
        self._publish = publish
        self._clock = clock
        self._start_mover = start_mover
        self._mover: TierMover | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="executor")
        self._generations: dict[RequestId, _Generation] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self.failure: EngineFailure | PeerError | None = None  # set once the engine has ended

    # --- life ---

    async def start(self) -> None:
        """Warm the executor up, then begin to run steps on the running event loop."""
        loop = self._loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._executor.warm_up)
        if self._start_mover is not None:
            self._mover = self._start_mover(self._from_any_thread)
        self._task = asyncio.create_task(self._run(), name="engine-loop")

    async def stop(self) -> None:
        """Stop after the step in flight; unfinished and later requests get a `PeerError`.

        Further calls do nothing more.
        """
        if self._task is not None and self._task.cancel():
            await asyncio.wait([self._task])
        self._end(PeerError("the engine is shutting down; send the request again later"))
        self._thread.shutdown()
        if self._mover is not None:
            mover, self._mover = self._mover, None
            await asyncio.to_thread(mover.close)

    # --- TokenEngine ---

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenOutput, None]:
        """Yield the outputs of `request`; closing the iterator early cancels it at once.

        Raises `NeverFits` or `InvalidRequest` before the first output, `EngineFailure`
        when the executor fails on a step of this request, `PeerError` when the engine stops.
        """
        if self.failure is not None:
            raise self.failure
        ends = frozenset() if request.ignore_eos else self._eos_token_ids
        generation = _Generation(request, request.stop_token_ids | self._eos_token_ids)
        submission = Submission(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            max_tokens=request.max_tokens,
            stop_token_ids=request.stop_token_ids | ends,
            salt=request.cache_salt,
        )
        self._replica.submit(submission, now=self._clock())
        self._move()
        self._generations[request.request_id] = generation
        self._wake.set()
        try:
            while True:
                output = await generation.outputs.get()
                if isinstance(output, Exception):
                    raise output
                yield output
                if output.finish_reason is not None:
                    return
        finally:
            self._abandon(request.request_id)

    async def reset_prefix_cache(self, *, with_tiers: bool = False) -> bool:
        """Forget all cached content; False (and nothing changes) while requests hold blocks.

        `with_tiers`: what lies on the host and on disk too; a shared store is not ours to empty.
        """
        for _ in range(round(RESET_WAIT_S / TIER_POLL_S)):
            if self._generations or not self._replica.waits_for_tiers:
                break
            await asyncio.sleep(TIER_POLL_S)
        cleared = self._replica.reset_prefix_cache(with_tiers=with_tiers)
        if cleared:
            only_device = self._mover is not None and not with_tiers
            self._announce([TierBlocksCleared("GPU") if only_device else AllBlocksCleared()])
        return cleared

    def prefetch(self, words: HashWords) -> int:
        """Begin to bring a chain's blocks up to the host; return how many are on their way."""
        num_blocks = self._replica.prefetch(words, now=self._clock())
        self._move()
        return num_blocks

    def stats(self) -> EngineStats:
        """Return gauges as of now."""
        pool = self._replica.pool
        return EngineStats(
            num_running=self._replica.num_running,
            num_waiting=self._replica.num_waiting,
            kv_cache_usage_share=1 - pool.num_free / pool.num_blocks,
            num_cached_blocks=pool.num_cached,
            num_blocks=pool.num_blocks,
            block_size=pool.block_size,
        )

    def _abandon(self, request_id: RequestId) -> None:
        """Cancel what has not ended by itself."""
        self._generations.pop(request_id, None)
        turn = self._replica.cancel(request_id, now=self._clock())
        if turn is not None:
            self._observer.finished(turn, "abort")

    # --- the loop ---

    async def _run(self) -> None:
        """Run steps for ever; a defect of our own ends the engine and says so to everyone."""
        try:
            while True:
                step = self._replica.plan(now=self._clock())
                self._move()
                if step is None:
                    await self._idle()
                else:
                    await self._run_step(step)
        except Exception as error:
            log.exception("the engine stops: a defect of warmturn itself")
            self._end(EngineFailure(f"the engine stopped: {type(error).__name__}: {error}"))

    async def _idle(self) -> None:
        """Wait for a request; the quiet moment is used to look for broken invariants."""
        self._wake.clear()
        if self._replica.waits_for_tiers:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), TIER_POLL_S)
            return
        try:
            await asyncio.wait_for(self._wake.wait(), IDLE_CHECK_S)
        except TimeoutError:
            if self._replica.pool.num_blocks <= CHECKED_BLOCKS:
                self._replica.check()
            await self._wake.wait()

    def _end(self, failure: EngineFailure | PeerError) -> None:
        """Refuse all that comes and fail all that is there."""
        self.failure = failure
        for generation in self._generations.values():
            generation.outputs.put_nowait(failure)

    async def _run_step(self, step: Step) -> None:
        choices = {
            work.request_id: self._generations[work.request_id].choice(
                self._replica.num_generated(work.request_id)
            )
            for work in step.works
            if work.samples
        }
        loop = asyncio.get_running_loop()
        try:
            execution = loop.run_in_executor(self._thread, self._executor.execute, step, choices)
            sampled = await asyncio.shield(execution)
        except Exception as error:  # noqa: BLE001 - one bad step must not stop the others
            self._fail(step, error)
            return
        report = self._replica.complete(sampled, now=self._clock())
        self._move()
        self._tell(step, report)

    def _fail(self, step: Step, error: Exception) -> None:
        log.error("step %d failed: %s: %s", step.number, type(error).__name__, error)
        failure = EngineFailure(f"step {step.number} failed: {type(error).__name__}")
        for request_id in self._replica.fail(now=self._clock()):
            self._generations[request_id].outputs.put_nowait(failure)

    def _tell(self, step: Step, report: StepReport) -> None:
        for progress in report.progress:
            generation = self._generations.get(progress.sampled.request_id)
            if generation is not None:
                generation.outputs.put_nowait(_output(progress, generation.sampling))
        self._observe(step, report)
        self._announce([*report.events, *self._replica.tier_events()])

    def _announce(self, events: Sequence[CacheEvent]) -> None:
        if self._publish is not None and events:
            self._publish(events)

    # --- tiers ---

    def _move(self) -> None:
        """Pass the replica's orders on."""
        if self._mover is not None:
            self._mover.submit(self._replica.take_orders())

    def _from_any_thread(self, done: Done) -> None:
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._transferred, done)

    def _transferred(self, done: Done) -> None:
        """Take in the end of an order, on the event loop, also while a step runs."""
        try:
            self._announce(self._replica.transferred(done, now=self._clock()))
        except Exception as error:
            log.exception("the engine stops: a defect of warmturn itself")
            self._end(EngineFailure(f"the engine stopped: {type(error).__name__}: {error}"))
            return
        self._move()
        self._wake.set()

    def _observe(self, step: Step, report: StepReport) -> None:
        self._observer.step(step.num_tokens)
        self._observer.preempted(report.num_preempted)
        for admission in report.admitted:
            self._observer.admitted(
                admission.prompt_tokens, admission.cached_tokens, admission.loaded_tokens
            )
        changes = report.changes
        self._observer.evicted(changes.lifetime_s, changes.idle_s, changes.reuse_gap_s)
        for progress in report.progress:
            if progress.turn is not None and progress.finish_reason is not None:
                self._observer.finished(progress.turn, progress.finish_reason)


def _output(progress: Progress, sampling: SamplingParams) -> TokenOutput:
    token = progress.sampled
    wanted = sampling.num_logprobs is not None and token.logprob is not None
    return TokenOutput(
        token_ids=(token.token_id,),
        logprobs=(token.logprob,) if wanted and token.logprob is not None else (),
        top_logprobs=(token.top_logprobs,) if wanted else (),
        num_cached_tokens=progress.num_cached_tokens,
        finish_reason=progress.finish_reason,
        metrics=progress.turn,
    )
