"""A `TokenEngine` that plays a script: no model, no pool, every cancellation recorded."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from warmturn.engine.api import EngineRequest, EngineStats, TokenOutput
from warmturn.errors import NeverFits
from warmturn.metrics import TurnMetrics


@dataclass(frozen=True)
class Script:
    """What every request gets."""

    token_ids: Sequence[int] = (1, 2, 3)
    """The model's wish; `max_tokens` may cut it."""
    finish_reason: str = "length"
    num_cached_tokens: int = 0
    tokens_per_step: int = 1
    fails_after: int | None = None
    """Raise `failure` once so many tokens are out."""
    failure: Exception = field(default_factory=lambda: RuntimeError("secret prompt"))
    hangs_after: int | None = None
    """Wait, until `FakeEngine.release`, once so many tokens are out."""


class FakeEngine:
    """Serves `script`; remembers requests and how each of them ended.

    `metrics`, when set, is told what the real engine's loop would tell it.
    """

    def __init__(self, script: Script | None = None, *, max_model_len: int = 1000) -> None:
        self.script = script or Script()
        self.max_model_len = max_model_len
        self.requests: list[EngineRequest] = []
        self.cancelled: list[str] = []
        self.finished: list[str] = []
        self.can_reset = True
        self.failure = None
        self.metrics = None
        self.num_hanging = 0
        self._is_released = False

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenOutput, None]:
        self._refuse_too_long(request)
        self.requests.append(request)
        if self.metrics is not None:
            self.metrics.admitted(len(request.prompt_token_ids), _num_cached(request, self.script))
        is_finished = False
        try:
            num_out = 0
            for output in self._outputs(request):
                await self._before_step(num_out)
                num_out += len(output.token_ids)
                is_finished = output.finish_reason is not None
                if is_finished and self.metrics is not None:
                    self.metrics.finished(output.metrics, output.finish_reason)
                yield output
        finally:
            (self.finished if is_finished else self.cancelled).append(request.request_id)

    async def reset_prefix_cache(self) -> bool:
        return self.can_reset

    def release(self) -> None:
        """Let what hangs go on."""
        self._is_released = True

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=len(self.requests) - len(self.finished) - len(self.cancelled),
            num_waiting=0,
            kv_cache_usage_share=0.0,
            num_cached_blocks=0,
            num_blocks=8,
            block_size=4,
        )

    def _refuse_too_long(self, request: EngineRequest) -> None:
        needed = len(request.prompt_token_ids) + (request.max_tokens or 1)
        if needed > self.max_model_len:
            raise NeverFits(f"needs {needed} tokens, the model has {self.max_model_len}")

    def _outputs(self, request: EngineRequest) -> list[TokenOutput]:
        script = self.script
        wanted = list(script.token_ids)[: request.max_tokens]
        was_cut = len(wanted) < len(script.token_ids)
        steps = [
            wanted[start : start + script.tokens_per_step]
            for start in range(0, len(wanted), script.tokens_per_step)
        ]
        return [
            self._output(request, step, is_last=index == len(steps) - 1, was_cut=was_cut)
            for index, step in enumerate(steps)
        ]

    def _output(
        self, request: EngineRequest, step: list[int], *, is_last: bool, was_cut: bool
    ) -> TokenOutput:
        num_logprobs = request.sampling.num_logprobs
        has_logprobs = num_logprobs is not None
        top = tuple((rank, -1.0 - rank) for rank in range(num_logprobs or 0))
        reason = "length" if was_cut else self.script.finish_reason
        return TokenOutput(
            token_ids=tuple(step),
            logprobs=(-0.5,) * len(step) if has_logprobs else (),
            top_logprobs=(top,) * len(step) if has_logprobs else (),
            num_cached_tokens=_num_cached(request, self.script),
            finish_reason=reason if is_last else None,
            metrics=_turn(request, self.script) if is_last else None,
        )

    async def _before_step(self, num_out: int) -> None:
        await asyncio.sleep(0)
        if self.script.fails_after is not None and num_out >= self.script.fails_after:
            raise self.script.failure
        if self.script.hangs_after is not None and num_out >= self.script.hangs_after:
            self.num_hanging += 1
            # Polled, because the test that releases it lives in another thread.
            while not self._is_released:
                await asyncio.sleep(0.005)


def _num_cached(request: EngineRequest, script: Script) -> int:
    return min(script.num_cached_tokens, len(request.prompt_token_ids) - 1)


def _turn(request: EngineRequest, script: Script) -> TurnMetrics:
    num_prompt = len(request.prompt_token_ids)
    return TurnMetrics(
        prompt_tokens=num_prompt,
        cached_tokens=_num_cached(request, script),
        prefilled_tokens=num_prompt - _num_cached(request, script),
        generated_tokens=len(script.token_ids),
        num_preemptions=0,
        queue_s=0.0,
        ttft_s=0.1,
        e2e_s=0.2,
    )
