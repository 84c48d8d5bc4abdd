"""What a template sees of a request, and its rendering with one thing changed.

`Prompt` is a value: an experiment is a prompt with something undone, rendered again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from warmturn.check.shared_messages import SharedMessage
from warmturn.errors import InvalidRequest
from warmturn.formats.record import LoggedRequest
from warmturn.render import ChatTemplate, Renderer
from warmturn.render.messages import plain_message, plain_tool

__all__ = [
    "PINNED_NOW",
    "Message",
    "Preparation",
    "Prompt",
    "PromptRenderer",
    "TranscriptTemplate",
    "prompt_of",
]

Message: TypeAlias = dict[str, Any]

Preparation: TypeAlias = Literal["as_served", "as_logged"]
"""`as_served`: messages as a server normalises them before rendering. `as_logged`: untouched,
as `apply_chat_template` takes them, with reasoning only under the names the template reads."""

PINNED_NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
"""The time shown to templates for requests whose log has none: the same for all of them."""

_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_RESERVED = frozenset({
    "self", "messages", "now", "tools", "documents", "add_generation_prompt",
    "continue_final_message",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prompt:
    """The part of a request that a template can see."""

    messages: tuple[Message, ...]
    tools: tuple[Message, ...] | None
    kwargs: Mapping[str, Any]
    now: datetime


def prompt_of(request: LoggedRequest) -> Prompt:
    """Return what the template saw; a request without a time gets `PINNED_NOW`."""
    now = PINNED_NOW
    if request.timestamp_s is not None:
        now = datetime.fromtimestamp(request.timestamp_s, tz=UTC)
    return Prompt(request.messages or (), request.tools, request.template_kwargs, now)


class _Template(Protocol):
    @property
    def source(self) -> str: ...
    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        now: datetime,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str: ...


class TranscriptTemplate:
    """Stands for a template nobody knows: prints roles, content and calls, and nothing else.

    For logs that lack the system prompt or the tools, where only messages can be compared.
    """

    source = ""
    content_format = "openai"

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        now: datetime,  # noqa: ARG002 - a template's signature
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> str:
        """Return one line of JSON for the tools and one per message."""
        lines = [] if not tools else [_json(tools)]
        lines += [_json([m.get("role"), m.get("content"), _calls(m)]) for m in messages]
        return "".join(f"{line}\n" for line in lines)


class PromptRenderer:
    """Renders prompts with one template (or the model's two, with and without tools)."""

    def __init__(
        self,
        template: ChatTemplate | Renderer | TranscriptTemplate,
        *,
        preparation: Preparation = "as_served",
        template_kwargs: Mapping[str, Any] = {},
    ) -> None:
        self._template = template
        self._preparation = preparation
        self._kwargs = {k: v for k, v in template_kwargs.items() if k not in _RESERVED}

    @property
    def is_transcript(self) -> bool:
        """Whether only messages are compared, since the template is not known."""
        return isinstance(self._template, TranscriptTemplate)

    def template_for(self, prompt: Prompt) -> _Template:
        """Return the template this prompt is rendered with."""
        if isinstance(self._template, Renderer):
            return self._template.template_for(has_tools=prompt.tools is not None)
        return self._template

    def text(
        self, prompt: Prompt, *, add_generation_prompt: bool = True, parses_arguments: bool = True
    ) -> str:
        """Return the prompt text.

        Arguments of tool calls given as a string are parsed first, unless told otherwise.
        Raises `TemplateError` where the template refuses.
        """
        template = self.template_for(prompt)
        kwargs = {k: v for k, v in prompt.kwargs.items() if k not in _RESERVED}
        return template.render(
            self._prepared(prompt.messages, template, parses_arguments=parses_arguments),
            now=prompt.now,
            tools=_plain_tools(prompt.tools) if prompt.tools else None,
            add_generation_prompt=add_generation_prompt,
            **(self._kwargs | kwargs),
        )

    def _prepared(
        self, messages: Sequence[Message], template: _Template, *, parses_arguments: bool
    ) -> list[Message]:
        if self._preparation == "as_logged":
            form = _Form(parses_arguments, unread=_unread_keys(template.source))
        else:
            wants_parts = getattr(template, "content_format", "string") == "openai"
            form = _Form(parses_arguments, wants_parts=wants_parts)
        known = [m.forms.get(form) if type(m) is SharedMessage else None for m in messages]
        return [
            _in_form(message, form) if found is None else found
            for message, found in zip(messages, known, strict=True)
        ]


class _Form(NamedTuple):
    """How a message is prepared; `wants_parts` is None where nothing is normalised."""

    parses_arguments: bool
    wants_parts: bool | None = None
    unread: tuple[str, ...] = ()


def _in_form(message: Message, form: _Form) -> Message:
    """Return the message as the template gets it; of a shared one, made once."""
    if not isinstance(message, SharedMessage):
        return _made(message, form)
    known: Message | None = message.forms.get(form)
    if known is None:
        known = message.forms[form] = plain_message(_made(message, form))
    return known


def _made(message: Message, form: _Form) -> Message:
    if form.parses_arguments:
        message = _with_parsed_arguments(message)
    if form.wants_parts is None:
        return {k: v for k, v in message.items() if k not in form.unread}
    return _served(message, wants_parts=form.wants_parts)


def _plain_tools(tools: Sequence[Message]) -> list[Message]:
    known = [tool.forms.get(None) if type(tool) is SharedMessage else None for tool in tools]
    return [
        _plain_tool(tool) if found is None else found
        for tool, found in zip(tools, known, strict=True)
    ]


def _plain_tool(tool: Message) -> Message:
    if not isinstance(tool, SharedMessage):
        return tool
    known: Message | None = tool.forms.get(None)
    if known is None:
        known = tool.forms[None] = plain_tool(tool)
    return known


@lru_cache(maxsize=64)
def _unread_keys(source: str) -> tuple[str, ...]:
    return tuple(key for key in _REASONING_KEYS if not re.search(rf"\b{key}\b", source))


def _with_parsed_arguments(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not isinstance(calls, (list, tuple)) or not calls:
        return message
    return {**message, "tool_calls": [_with_parsed_call(call) for call in calls]}


def _with_parsed_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    return {**call, "function": {**function, "arguments": _parsed(function["arguments"])}}


@lru_cache(maxsize=4096)
def _parsed_text(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _parsed(arguments: str) -> Any:
    return _parsed_text(arguments)


def _served(message: Message, *, wants_parts: bool) -> Message:
    """Give content and calls the form servers give them: no nulls, and text where text is wanted."""
    content = message.get("content")
    result = dict(message)
    if content is None:
        result["content"] = ""
    elif isinstance(content, (list, tuple)) and not (wants_parts and message.get("role") != "tool"):
        result["content"] = "\n".join(_part_text(part) for part in content)
    if not result.get("tool_calls"):
        result.pop("tool_calls", None)
    return result


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise InvalidRequest(f"a content part is {part!r}; it has to be an object or a string")
    text = part.get("text", part.get("refusal"))
    # What is no text still takes room in the prompt and has to be seen when it goes.
    return text if isinstance(text, str) else _json(part)


def _calls(message: Mapping[str, Any]) -> list[Any]:
    calls = message.get("tool_calls") or []
    return [call.get("function") if isinstance(call, dict) else call for call in calls]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
