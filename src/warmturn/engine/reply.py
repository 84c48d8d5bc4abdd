"""From the engine's tokens to pieces of a reply: text, logprobs, and why it ended."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from warmturn.engine.api import EngineRequest, FinishReason, TokenEngine, TokenOutput
from warmturn.engine.metrics import EngineMetrics
from warmturn.engine.text import ReplyText, StopMatcher
from warmturn.errors import PeerError
from warmturn.formats import Generation
from warmturn.render.tokenizer import Tokenizer

__all__ = [
    "Delta",
    "ReplyReader",
    "TokenLogprob",
    "all_of",
    "deltas",
    "next_of",
    "reply_reader",
]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One chosen token with the alternatives asked for, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """What one engine step added to a reply. The last one has a `finish_reason`."""

    text: str
    """May lag behind the tokens: unfinished characters and possible stop strings wait."""
    token_ids: tuple[int, ...]
    """Up to and with the token that completed a stop string."""
    logprobs: tuple[TokenLogprob, ...]
    """One per token when asked for, else empty."""
    num_generated: int
    """Tokens of the reply so far."""
    num_cached_tokens: int
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop string or the request's stop token that ended the reply (vLLM)."""


class ReplyReader:
    """Turns the outputs of one request into deltas, in order."""

    def __init__(
        self, text: ReplyText, *, stop_token_ids: frozenset[int], shows_stop: bool
    ) -> None:
        """`shows_stop`: the token that ends the reply is part of the text."""
        self._stop_token_ids = stop_token_ids
        self._text = text
        self._shows_stop = shows_stop
        self._num_generated = 0

    def read(self, output: TokenOutput) -> Delta:
        """Return what `output` adds. After a delta with a `finish_reason` nothing may follow."""
        text, num_used = self._read_text(output)
        self._num_generated += num_used
        finish_reason = output.finish_reason
        if finish_reason is not None and self._text.matched is None:
            text += self._text.flush()
        if self._text.matched is not None:
            finish_reason = "stop"
        return Delta(
            text=text,
            token_ids=output.token_ids[:num_used],
            logprobs=_logprobs(output, num_used),
            num_generated=self._num_generated,
            num_cached_tokens=output.num_cached_tokens,
            finish_reason=finish_reason,
            stop_reason=self._stop_reason(output),
        )

    def _read_text(self, output: TokenOutput) -> tuple[str, int]:
        """Return the text shown and the number of tokens used: fewer if a stop string ends it."""
        pieces = []
        for index, token_id in enumerate(output.token_ids):
            is_end = output.finish_reason == "stop" and index == len(output.token_ids) - 1
            if is_end and not self._shows_stop:
                break
            pieces.append(self._text.push(token_id))
            if self._text.matched is not None:
                return "".join(pieces), index + 1
        return "".join(pieces), len(output.token_ids)

    def _stop_reason(self, output: TokenOutput) -> int | str | None:
        if self._text.matched is not None:
            return self._text.matched
        if output.finish_reason == "stop" and output.token_ids[-1] in self._stop_token_ids:
            return output.token_ids[-1]
        return None


def reply_reader(generation: Generation, tokenizer: Tokenizer) -> ReplyReader:
    """Return a reader for one reply, as its request wants the text."""
    shows_stop = generation.include_stop_str_in_output
    text = ReplyText(
        tokenizer.decode_stream(skip_special_tokens=generation.skip_special_tokens),
        StopMatcher(generation.stop_strings, include_stop=shows_stop),
        min_tokens=generation.min_tokens,
    )
    return ReplyReader(
        text, stop_token_ids=frozenset(generation.stop_token_ids), shows_stop=shows_stop
    )


async def deltas(
    engine: TokenEngine,
    request: EngineRequest,
    reader: ReplyReader,
    *,
    metrics: EngineMetrics,
    clock: Callable[[], float],
) -> AsyncGenerator[Delta, None]:
    """Generate, and yield what each engine step adds to the reply.

    The engine's request is over, its blocks free, before the last delta is yielded, and at
    once when this generator is closed or its task cancelled. Raises what the engine raises,
    and `PeerError` when the engine gives the request up.
    """
    interval = _Interval(clock)
    last: Delta | None = None
    was_cut = False
    try:
        async with aclosing(engine.generate(request)) as outputs:
            async for output in outputs:
                if output.finish_reason == "abort":
                    break
                delta = reader.read(output)
                metrics.generated(len(delta.token_ids), since_last_s=interval.next_s())
                if delta.finish_reason is not None:
                    last, was_cut = delta, output.finish_reason is None
                    break
                yield delta
    except (GeneratorExit, asyncio.CancelledError):
        metrics.ended_early("abort")
        raise
    if last is None:
        metrics.ended_early("abort")
        raise PeerError("the engine gave this request up; send it again")
    if was_cut:
        metrics.ended_early("stop")
    yield last


async def all_of(reply: AsyncGenerator[Delta, None]) -> list[Delta]:
    """Return every delta of a reply."""
    async with aclosing(reply):
        return [delta async for delta in reply]


async def next_of(reply: AsyncGenerator[Delta, None]) -> Delta:
    """Return the next delta of a reply that is not over."""
    return await anext(reply)


class _Interval:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_s: float | None = None

    def next_s(self) -> float | None:
        """Return the seconds since the last call; None at the first."""
        before_s, self._last_s = self._last_s, self._clock()
        return None if before_s is None else self._last_s - before_s


def _logprobs(output: TokenOutput, num_used: int) -> tuple[TokenLogprob, ...]:
    chosen = zip(output.token_ids, output.logprobs, strict=False)
    tops = output.top_logprobs or ((),) * len(output.token_ids)
    joined = zip(chosen, tops, strict=False)
    return tuple(TokenLogprob(*pair, top) for pair, top in joined)[:num_used]
