"""What every log format becomes: one request of a conversation, or a line that is broken."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from warmturn.formats.body import JsonObject

__all__ = ["BadLine", "Level", "LoggedRequest", "Skipped", "Wanted"]

Level: TypeAlias = Literal["full", "messages"]
"""What can be said about a prompt: `full`, or `messages` where the format does not hold
the system prompt and the tools, so that only whole messages can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """One request of a log, whatever format it came from.

    Absent is None. At least one of `messages`, `prompt_text` and `prompt_token_ids` is
    there. Dictionaries may be shared between requests of one conversation: read, do not
    change them.
    """

    source: str
    """The file's name as given; `-` is standard input."""
    line: int
    """1-based line, or number of the record in a JSON array."""
    level: Level
    request_id: str | None = None
    conversation_id: str | None = None
    """Only where the log names the conversation; never guessed from the content."""
    model: str | None = None
    adapter: str | None = None
    cache_salt: str | None = None
    timestamp_s: float | None = None
    """When the request was sent, seconds since the epoch."""
    end_s: float | None = None
    """When its answer was complete, seconds since the epoch."""
    messages: tuple[JsonObject, ...] | None = None
    """In OpenAI form, other formats converted; None for logs of text or tokens."""
    tools: tuple[JsonObject, ...] | None = None
    template_kwargs: JsonObject = field(default_factory=dict)
    prompt_text: str | None = None
    """The rendered prompt."""
    prompt_token_ids: tuple[int, ...] | None = None
    reply: JsonObject | None = None
    """The assistant message as the server returned it: content, reasoning, tool_calls."""
    reply_text: str | None = None
    """The generated text as it left the model, where the log has it."""
    reply_token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line or record that could not be read; the ones after it still are."""

    source: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that the caller did not want, whatever is in it."""


Wanted: TypeAlias = Callable[[str | None, int], bool]
"""Asked once for every record in order: its conversation's id, if that can be had, and its size."""
