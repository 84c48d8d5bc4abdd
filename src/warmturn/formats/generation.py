"""How to generate: the fields that chat and completion bodies share, and those refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from warmturn.errors import InvalidRequest
from warmturn.formats.body import JsonObject, typed

__all__ = ["HARMLESS", "REFUSED", "Count", "Generation", "NumLogprobs", "StreamOptions", "TokenId"]

MAX_STOP_STRINGS = 16
"""OpenAI allows 4, vLLM any number; each one costs a comparison per character of the reply."""
MAX_STOP_CHARS = 256
MAX_STOP_TOKEN_IDS = 256
MAX_LOGPROBS = 20
"""OpenAI's bound, and vLLM's default."""
GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy, as in vLLM: dividing logits by less overflows."""

_I32_MAX = 2**31 - 1
Count = Annotated[int, Meta(ge=1, le=_I32_MAX)]
TokenId = Annotated[int, Meta(ge=0, le=_I32_MAX)]
NumLogprobs = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]
_StopString = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
_StopStrings = Annotated[list[_StopString], Meta(max_length=MAX_STOP_STRINGS)]
_StopTokenIds = Annotated[list[TokenId], Meta(max_length=MAX_STOP_TOKEN_IDS)]

REFUSED: Mapping[str, tuple[object, ...]] = {
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "documents": ([],),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "kv_transfer_params": (),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logits_processors": ([],),
    "min_p": (0,),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "prompt_embeds": (),
    "prompt_logprobs": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "return_tokens_as_token_ids": (False,),
    "spaces_between_special_tokens": (True,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "web_search_options": (),
}
"""Known fields with an effect this server does not have, and the values that ask for none."""

HARMLESS = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""Known fields that may be ignored: none of them is meant to change the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a stream carries beside the text."""

    include_usage: bool = False
    """One more chunk before the end, without choices, with the usage."""
    continuous_usage_stats: bool = False
    """The usage so far on every chunk (vLLM)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Field names are the wire's own; the properties say what the engine is asked for."""

    model: str | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1, le=_I32_MAX)] = -1
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=_I32_MAX)] = 0
    stop: _StopString | _StopStrings = field(default_factory=list)
    stop_token_ids: _StopTokenIds = field(default_factory=list)
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    cache_salt: str | None = None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop`, which may be one string on the wire."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def usable_temperature(self) -> float:
        """`temperature`, with what is too small to divide by as 0."""
        return self.temperature if self.temperature >= GREEDY_BELOW else 0.0

    @property
    def top_k_or_none(self) -> int | None:
        """`top_k`; None where the wire says 0 or -1, which both mean all tokens."""
        return self.top_k if self.top_k > 0 else None

    @property
    def streaming(self) -> StreamOptions:
        """`stream_options`, or the defaults."""
        return self.stream_options or StreamOptions()


def generation(body: JsonObject) -> Generation:
    """Return the shared fields of `body`. Raises `InvalidRequest` naming the field."""
    for name, neutral in REFUSED.items():
        if name in body and not _is_among(body[name], neutral):
            raise InvalidRequest(_refusal(name, neutral), param=name)
    parsed = typed(body, Generation)
    if parsed.stream_options is not None and not parsed.stream:
        raise InvalidRequest(
            "stream_options is set but stream is not; set stream to true or leave it out",
            param="stream_options",
        )
    return parsed


def _is_among(value: object, neutral: tuple[object, ...]) -> bool:
    # True == 1 in Python, but a boolean is not a count.
    return any(
        value == other and isinstance(value, bool) == isinstance(other, bool) for other in neutral
    )


def _refusal(name: str, neutral: tuple[object, ...]) -> str:
    if not neutral:
        return f"{name} is not supported; leave it out"
    return f"{name} is supported only as {' or '.join(map(repr, neutral))}; or leave it out"
