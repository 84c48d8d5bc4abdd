"""The JSON that answers a generation: whole or in chunks, chat or completion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from warmturn.engine.reply import Delta, TokenLogprob
from warmturn.formats import Generation
from warmturn.render.tokenizer import Tokenizer
from warmturn.types import TokenIds

__all__ = ["Answer", "ChatShape", "CompletionShape", "Shape"]

Json: TypeAlias = dict[str, Any]

_LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say; vLLM's value."""


class Shape(Protocol):
    """What chat and completion answers do differently."""

    id_prefix: str
    object_whole: str
    object_chunk: str

    def opening(self) -> Json | None:
        """Return the choice fields of a chunk before any text, where there is one."""
        ...

    def piece(self, delta: Delta, tokenizer: Tokenizer, *, logprobs: bool) -> Json:
        """Return the choice fields of one chunk."""
        ...

    def whole(self, parts: Sequence[Delta], tokenizer: Tokenizer, *, logprobs: bool) -> Json:
        """Return the choice fields of a whole reply."""
        ...


class ChatShape:
    """/v1/chat/completions."""

    id_prefix = "chatcmpl"
    object_whole = "chat.completion"
    object_chunk = "chat.completion.chunk"

    def opening(self) -> Json | None:
        """The role comes first, in a chunk of its own."""
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def piece(self, delta: Delta, tokenizer: Tokenizer, *, logprobs: bool) -> Json:
        """Text goes under `delta`, which is empty where there is none."""
        content = {"content": delta.text} if delta.text else {}
        return {"delta": content, "logprobs": _chat_logprobs([delta], tokenizer, logprobs=logprobs)}

    def whole(self, parts: Sequence[Delta], tokenizer: Tokenizer, *, logprobs: bool) -> Json:
        """Text goes into a message."""
        return {
            "message": {"role": "assistant", "content": _text(parts), "refusal": None},
            "logprobs": _chat_logprobs(parts, tokenizer, logprobs=logprobs),
        }


class CompletionShape:
    """/v1/completions. One object per reply: it counts the characters sent so far."""

    id_prefix = "cmpl"
    object_whole = "text_completion"
    object_chunk = "text_completion"

    def __init__(self) -> None:
        self._num_chars = 0

    def opening(self) -> Json | None:
        """Text comes at once."""
        return None

    def piece(self, delta: Delta, tokenizer: Tokenizer, *, logprobs: bool) -> Json:
        """Chunk and whole reply look alike."""
        return self.whole([delta], tokenizer, logprobs=logprobs)

    def whole(self, parts: Sequence[Delta], tokenizer: Tokenizer, *, logprobs: bool) -> Json:
        """Text stands in the choice itself."""
        columns = self._logprobs(parts, tokenizer) if logprobs else None
        return {"text": _text(parts), "logprobs": columns}

    def _logprobs(self, parts: Sequence[Delta], tokenizer: Tokenizer) -> Json:
        """One list per fact, as the older API has it; the chosen token is among the top ones."""
        chosen = [token for part in parts for token in part.logprobs]
        tokens = [tokenizer.token_text(token.token_id) for token in chosen]
        offsets = []
        for text in tokens:
            offsets.append(self._num_chars)
            self._num_chars += len(text)
        return {
            "tokens": tokens,
            "token_logprobs": [_finite(token.logprob) for token in chosen],
            "top_logprobs": [_by_text(token, tokenizer) for token in chosen],
            "text_offset": offsets,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer under way: what is equal in all its chunks."""

    shape: Shape
    id: str
    created: int
    model_name: str
    prompt_token_ids: TokenIds
    generation: Generation
    logprobs: bool
    tokenizer: Tokenizer

    def whole(self, parts: Sequence[Delta]) -> Json:
        """Return the body of an answer that is not streamed."""
        last = parts[-1]
        choice = self.shape.whole(parts, self.tokenizer, logprobs=self.logprobs)
        token_ids = [token_id for part in parts for token_id in part.token_ids]
        body = self._envelope(self.shape.object_whole)
        body["choices"] = [self._choice(choice, token_ids, last)]
        body["usage"] = self._usage(last.num_generated, last.num_cached_tokens)
        return body | self._prompt_ids()

    def chunks(self, delta: Delta, *, is_first: bool) -> list[Json]:
        """Return the chunks for one delta; none where it has nothing to show yet."""
        chunks = []
        opening = self.shape.opening() if is_first else None
        if opening is not None:
            chunks.append(self._chunk(self._choice(opening, None, None), delta, num_generated=0))
        if self._shows(delta) or (is_first and opening is None):
            piece = self.shape.piece(delta, self.tokenizer, logprobs=self.logprobs)
            choice = self._choice(piece, delta.token_ids, delta)
            chunks.append(self._chunk(choice, delta, num_generated=delta.num_generated))
        if is_first and chunks:
            chunks[0] |= self._prompt_ids()
        return chunks

    def final_usage(self, last: Delta) -> Json | None:
        """Return the chunk that ends a stream whose client asked for usage."""
        if not self.generation.streaming.include_usage:
            return None
        usage = self._usage(last.num_generated, last.num_cached_tokens)
        return self._envelope(self.shape.object_chunk) | {"choices": [], "usage": usage}

    def _shows(self, delta: Delta) -> bool:
        wants_tokens = self.generation.return_token_ids or self.logprobs
        has_tokens = wants_tokens and bool(delta.token_ids)
        return bool(delta.text) or has_tokens or delta.finish_reason is not None

    def _chunk(self, choice: Json, delta: Delta, *, num_generated: int) -> Json:
        chunk = self._envelope(self.shape.object_chunk) | {"choices": [choice]}
        if self.generation.streaming.continuous_usage_stats:
            chunk["usage"] = self._usage(num_generated, delta.num_cached_tokens)
        elif self.generation.streaming.include_usage:
            chunk["usage"] = None  # as OpenAI does before the chunk that has it
        return chunk

    def _choice(self, fields: Json, token_ids: Sequence[int] | None, end: Delta | None) -> Json:
        choice = {
            "index": 0,
            **fields,
            "finish_reason": end.finish_reason if end else None,
            "stop_reason": end.stop_reason if end else None,
        }
        if self.generation.return_token_ids:
            choice["token_ids"] = None if token_ids is None else list(token_ids)
        return choice

    def _envelope(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model_name}

    def _prompt_ids(self) -> Json:
        if not self.generation.return_token_ids:
            return {}
        return {"prompt_token_ids": self.prompt_token_ids.tolist()}

    def _usage(self, num_generated: int, num_cached_tokens: int) -> Json:
        prompt_tokens = len(self.prompt_token_ids)
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": num_generated,
            "total_tokens": prompt_tokens + num_generated,
            "prompt_tokens_details": {"cached_tokens": num_cached_tokens},
        }


def _text(parts: Sequence[Delta]) -> str:
    return "".join(part.text for part in parts)


def _chat_logprobs(parts: Sequence[Delta], tokenizer: Tokenizer, *, logprobs: bool) -> Json | None:
    if not logprobs:
        return None
    content = [
        _chat_token(token.token_id, token.logprob, tokenizer)
        | {"top_logprobs": [_chat_token(*pair, tokenizer) for pair in token.top]}
        for part in parts
        for token in part.logprobs
    ]
    return {"content": content}


def _chat_token(token_id: int, logprob: float, tokenizer: Tokenizer) -> Json:
    text = tokenizer.token_text(token_id)
    token_bytes = tokenizer.token_bytes(token_id)
    return {
        "token": text,
        "logprob": _finite(logprob),
        "bytes": list(text.encode() if token_bytes is None else token_bytes),
    }


def _by_text(token: TokenLogprob, tokenizer: Tokenizer) -> dict[str, float]:
    pairs = (*token.top, (token.token_id, token.logprob))
    return {tokenizer.token_text(token_id): _finite(logprob) for token_id, logprob in pairs}


def _finite(logprob: float) -> float:
    return max(logprob, _LOWEST_LOGPROB)
