"""What goes into the embedded engine and what comes out, in tokens. Text lives in the server."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from warmturn.errors import EngineFailure
from warmturn.metrics import TurnMetrics
from warmturn.types import RequestId, TokenIds

__all__ = [
    "Choice",
    "EngineRequest",
    "EngineStats",
    "FinishReason",
    "SamplingParams",
    "TokenEngine",
    "TokenOutput",
]

FinishReason = str
"""`stop` (a stop token), `length` (max_tokens or the model's length) or `abort`."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. The defaults are OpenAI's; temperature 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    """Equal seed, prompt and parameters give equal tokens, whatever else runs in the batch."""
    num_logprobs: int | None = None
    """None: no logprobs; 0: only the chosen token's; n: also the n most likely ones."""
    min_tokens: int = 0
    """End and stop tokens cannot be chosen before this many tokens are generated."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How the executor chooses the one next token of one sequence in one step."""

    params: SamplingParams
    """With a seed whenever temperature > 0."""
    index: int
    """Tokens generated before this one; with the seed it fixes the random draw, so that
    a preempted or re-batched request draws the same."""
    banned_token_ids: tuple[int, ...] = ()
    """Their logits count as minus infinity."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One generation."""

    request_id: RequestId
    prompt_token_ids: TokenIds
    max_tokens: int | None = None
    """None: as many as the model's length leaves room for."""
    sampling: SamplingParams = SamplingParams()
    stop_token_ids: frozenset[int] = frozenset()
    """Beside the model's own end tokens."""
    ignore_eos: bool = False
    """True: neither the model's end tokens nor anything but length ends the reply."""
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """What one engine step brought for one request. The last one has a `finish_reason`."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """One per token when logprobs were asked for, else empty."""
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...]
    """Per token the `(token_id, logprob)` pairs asked for, best first, else empty."""
    num_cached_tokens: int
    """Prompt tokens found in the pool at first admission."""
    finish_reason: FinishReason | None = None
    metrics: TurnMetrics | None = None
    """Set with `finish_reason`."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Gauges of the moment."""

    num_running: int
    num_waiting: int
    kv_cache_usage_share: float
    """Share of blocks that running requests hold, 0 to 1; 0 when idle, as in vLLM."""
    num_cached_blocks: int
    """Blocks with reusable content, referenced or not."""
    num_blocks: int
    block_size: int


class TokenEngine(Protocol):
    """What the server needs of an engine; the real one is `engine.loop.Engine`."""

    max_model_len: int
    """Longest prompt + reply, in tokens: the model's limit or the pool's, the smaller."""
    failure: EngineFailure | None
    """Why the engine has ended and takes nothing more; None while it runs."""

    def generate(self, request: EngineRequest) -> AsyncGenerator[TokenOutput, None]:
        """Yield the outputs of `request` as steps complete.

        Raises `NeverFits` before the first output. Closing the generator early cancels
        the request and frees its blocks at once.
        """
        ...

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached content; False (and nothing changes) while requests hold blocks."""
        ...

    def stats(self) -> EngineStats:
        """Return gauges as of now."""
        ...
