"""One logged request, whatever the log it came from."""

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["LoggedRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """A request as a log tells it; absent fields are None. Messages are taken as they were sent."""

    source: str
    line: int
    request_id: str | None
    conversation_id: str | None
    model: str | None
    adapter: str | None
    cache_salt: str | None
    timestamp_s: float | None
    end_s: float | None
    messages: tuple[dict[str, Any], ...] | None
    tools: tuple[dict[str, Any], ...] | None
    template_kwargs: dict[str, Any]
    prompt_text: str | None
    prompt_token_ids: tuple[int, ...] | None
    reply: dict[str, Any] | None
    reply_text: str | None
    reply_token_ids: tuple[int, ...] | None
    finish_reason: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    level: Literal["full", "messages"]
