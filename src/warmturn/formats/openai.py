"""OpenAI request bodies, with vLLM's extensions, to typed requests.

A field set to null counts as absent. A field whose effect this server does not have is
refused by name unless it asks for what would happen anyway (`generation.REFUSED`). Fields
nobody knows are ignored, as vLLM does; `ignored_fields` names them.
"""

from dataclasses import dataclass, fields
from typing import TypeAlias, cast

import numpy as np

from warmturn.errors import InvalidRequest
from warmturn.formats.body import JsonObject, typed
from warmturn.formats.generation import (
    HARMLESS,
    REFUSED,
    Count,
    Generation,
    NumLogprobs,
    TokenId,
    generation,
)
from warmturn.formats.prompt import ChatPrompt, TextPrompt, chat_prompt
from warmturn.types import TokenIds

__all__ = [
    "DetokenizeRequest",
    "GenerateRequest",
    "TokenizeRequest",
    "chat_request",
    "completion_request",
    "detokenize_request",
    "ignored_fields",
    "tokenize_request",
]

DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for /v1/completions."""

_OneOrMore: TypeAlias = str | list[TokenId | str | list[TokenId]]


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One reply to generate."""

    prompt: ChatPrompt | TextPrompt | TokenIds
    generation: Generation
    max_tokens: int | None
    """None: as many as fit."""
    num_logprobs: int | None
    """None: none wanted; 0: the chosen token's; n: also the n most likely."""


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """One prompt to show as tokens."""

    prompt: ChatPrompt | TextPrompt
    return_token_strs: bool
    cache_salt: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DetokenizeRequest:
    """Token ids to show as text."""

    tokens: list[TokenId]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatFields:
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: NumLogprobs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompletionFields:
    prompt: _OneOrMore
    max_tokens: Count = DEFAULT_COMPLETION_TOKENS
    logprobs: NumLogprobs | None = None
    add_special_tokens: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenizeFields:
    prompt: str = ""
    add_special_tokens: bool = True
    return_token_strs: bool = False
    cache_salt: str | None = None


def chat_request(body: JsonObject) -> GenerateRequest:
    """Read POST /v1/chat/completions. Raises `InvalidRequest` naming the field."""
    body = _without_nulls(body)
    chat = typed(body, _ChatFields)
    if chat.top_logprobs is not None and not chat.logprobs:
        raise InvalidRequest(
            "top_logprobs is set but logprobs is not; set logprobs to true", param="top_logprobs"
        )
    request = GenerateRequest(
        prompt=chat_prompt(body),
        generation=generation(body),
        max_tokens=chat.max_completion_tokens or chat.max_tokens,
        num_logprobs=(chat.top_logprobs or 0) if chat.logprobs else None,
    )
    return _checked(request)


def completion_request(body: JsonObject) -> GenerateRequest:
    """Read POST /v1/completions, for one prompt. Raises `InvalidRequest` naming the field."""
    body = _without_nulls(body)
    completion = typed(body, _CompletionFields)
    request = GenerateRequest(
        prompt=_one_prompt(completion.prompt, add_special_tokens=completion.add_special_tokens),
        generation=generation(body),
        max_tokens=completion.max_tokens,
        num_logprobs=completion.logprobs,
    )
    return _checked(request)


def tokenize_request(body: JsonObject) -> TokenizeRequest:
    """Read POST /tokenize, by `messages` or by `prompt`. Raises `InvalidRequest`."""
    body = _without_nulls(body)
    plain = typed(body, _TokenizeFields)
    if ("messages" in body) == ("prompt" in body):
        raise InvalidRequest("send either messages or prompt, not both", param="prompt")
    prompt: ChatPrompt | TextPrompt
    if "messages" in body:
        prompt = chat_prompt(body)
    else:
        prompt = TextPrompt(text=plain.prompt, add_special_tokens=plain.add_special_tokens)
    return TokenizeRequest(prompt, plain.return_token_strs, plain.cache_salt)


def detokenize_request(body: JsonObject) -> DetokenizeRequest:
    """Read POST /detokenize. Raises `InvalidRequest`."""
    return typed(body, DetokenizeRequest)


def ignored_fields(body: JsonObject) -> list[str]:
    """Return the names in a generation body, sorted, that no reader here knows."""
    kinds = (Generation, ChatPrompt, _ChatFields, _CompletionFields)
    known = {field.name for kind in kinds for field in fields(kind)}
    return sorted(body.keys() - known - HARMLESS - REFUSED.keys())


def _without_nulls(body: JsonObject) -> JsonObject:
    return {name: value for name, value in body.items() if value is not None}


def _one_prompt(prompt: _OneOrMore, *, add_special_tokens: bool) -> TextPrompt | TokenIds:
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = cast("_OneOrMore", prompt[0])
    if not prompt:
        raise InvalidRequest("prompt is empty; send text or token ids", param="prompt")
    if isinstance(prompt, str):
        return TextPrompt(text=prompt, add_special_tokens=add_special_tokens)
    if not all(isinstance(item, int) for item in prompt):
        raise InvalidRequest(
            f"prompt is a list of {len(prompt)} prompts or of mixed kinds; send one request for "
            "each prompt",
            param="prompt",
        )
    return np.asarray(prompt, dtype=np.int32)


def _checked(request: GenerateRequest) -> GenerateRequest:
    min_tokens = request.generation.min_tokens
    if request.max_tokens is not None and min_tokens > request.max_tokens:
        raise InvalidRequest(
            f"min_tokens is {min_tokens} and max_tokens is {request.max_tokens}; "
            "raise max_tokens or lower min_tokens",
            param="min_tokens",
        )
    return request
