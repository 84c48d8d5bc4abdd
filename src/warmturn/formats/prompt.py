"""What a request asks to continue: messages, a text or token ids. Shapes only, no rendering."""

from dataclasses import dataclass, field
from typing import Any, Literal

from warmturn.errors import InvalidRequest
from warmturn.formats.body import JsonObject, check_depth, typed

__all__ = ["ChatPrompt", "TextPrompt", "chat_prompt"]

ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPrompt:
    """A prompt to tokenise as it stands."""

    text: str
    add_special_tokens: bool = True
    """True: the tokenizer adds its begin token, where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """Messages and tools as sent, shapes checked, for the model's chat template."""

    messages: list[JsonObject]
    tools: list[JsonObject] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template_kwargs: JsonObject = field(default_factory=dict)
    reasoning_effort: str | None = None

    @property
    def template_kwargs(self) -> JsonObject:
        """What the template gets by name, `reasoning_effort` among it, as in vLLM."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return effort | self.chat_template_kwargs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    type: str
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FunctionCall:
    name: str
    arguments: str | dict[str, Any] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToolCall:
    function: _FunctionCall
    id: str | None = None
    type: Literal["function"] = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    role: str
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    function: _Function
    type: Literal["function"] = "function"


def chat_prompt(body: JsonObject) -> ChatPrompt:
    """Return the prompt fields of a chat body. Raises `InvalidRequest` naming the field."""
    prompt = typed(body, ChatPrompt)
    if not prompt.messages:
        raise InvalidRequest("messages is empty; send at least one message", param="messages")
    for name in ("messages", "tools", "chat_template_kwargs"):
        check_depth(getattr(prompt, name) or [], param=name)
    for index, message in enumerate(typed(prompt.messages, list[_Message], under="messages")):
        _check_message(message, under=f"messages[{index}]")
    typed(prompt.tools or [], list[_Tool], under="tools")
    return prompt


def _check_message(message: _Message, *, under: str) -> None:
    if message.role not in ROLES:
        raise InvalidRequest(
            f"{under}.role is {message.role[:40]!r}; use one of {', '.join(ROLES)}",
            param=f"{under}.role",
        )
    if message.content is None and message.role != "assistant":
        raise InvalidRequest(
            f"{under}.content is missing; only an assistant message may have none",
            param=f"{under}.content",
        )
    if isinstance(message.content, list):
        _check_parts(message.content, param=f"{under}.content")


def _check_parts(parts: list[_Part], *, param: str) -> None:
    for index, part in enumerate(parts):
        if part.type != "text" or part.text is None:
            raise InvalidRequest(
                f"{param}[{index}] is a part of type {part.type[:40]!r}; "
                'only {"type": "text", "text": "..."} is supported',
                param=param,
            )
