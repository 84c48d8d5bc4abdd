"""Standard shapes of a conversation: two requests each, the second continuing the first.

What the model generated is not known without a log, so it is taken from the template's own
rendering of the reply, with white space and reasoning put back. A shape that passes is
therefore consistent with itself; what a real model writes may still differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from warmturn.check.prompt import Message, PromptRenderer, prompt_of
from warmturn.check.reply import generated_by
from warmturn.formats.record import LoggedRequest

__all__ = ["SHAPES", "Shape", "with_compact_arguments"]

_DAY_S: Final = 86_400.0
_START_S: Final = 1_772_445_600.0
"""2 March 2026, 10:00 UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One continuation; `reply` answers `messages`, `echo` is how the client sends it back."""

    name: str
    about: str
    messages: tuple[Message, ...]
    reply: Message
    new: tuple[Message, ...]
    echo: Message | None = None
    """None: as it was generated."""
    tools: tuple[Message, ...] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    gap_s: float = 60.0
    is_compact: bool = False
    """Whether the model wrote the arguments of its call without blanks."""

    def requests(self) -> tuple[LoggedRequest, LoggedRequest]:
        """Return the earlier request with its reply, and the later one."""
        echo = self.reply if self.echo is None else self.echo
        earlier = self._request(1, self.messages, reply=self.reply)
        return earlier, self._request(2, (*self.messages, echo, *self.new))

    def _request(
        self, number: int, messages: tuple[Message, ...], reply: Message | None = None
    ) -> LoggedRequest:
        return LoggedRequest(
            source=self.name,
            line=number,
            level="full",
            request_id=f"{self.name}-{number}",
            messages=messages,
            tools=self.tools,
            template_kwargs=dict(self.template_kwargs),
            timestamp_s=_START_S + (number - 1) * self.gap_s,
            reply=reply,
        )


_COMPACT, _SPACED = '{"city":"Paris","days":2}', '{"city": "Paris", "days": 2}'
_REASONING = "Let me think about it."
_SYSTEM: Message = {"role": "system", "content": "You answer questions about the weather."}
_USER: Message = {"role": "user", "content": "First question?"}
_NEXT: Message = {"role": "user", "content": "Second question?"}
_ANSWER: Message = {"role": "assistant", "content": "Answer one."}
_THOUGHT: Message = {
    **_ANSWER,
    # All three names, so that a template finds the one it reads.
    "reasoning": _REASONING,
    "reasoning_content": _REASONING,
    "thinking": _REASONING,
}
_CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call00001",  # nine letters and digits: some templates take no other
            "type": "function",
            "function": {"name": "get_weather", "arguments": _COMPACT},
        }
    ],
}
_RESULT: Message = {
    "role": "tool",
    "tool_call_id": "call00001",
    "name": "get_weather",
    "content": '{"temp": 20}',
}
_TOOLS: tuple[Message, ...] = (
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    },
)
_REASONED_CALL: Message = {**_THOUGHT, **_CALL}

SHAPES: tuple[Shape, ...] = (
    Shape(
        name="plain",
        about="a question, an answer, the next question",
        messages=(_SYSTEM, _USER),
        reply=_ANSWER,
        new=(_NEXT,),
    ),
    Shape(
        name="no-system",
        about="the same without a system message",
        messages=(_USER,),
        reply=_ANSWER,
        new=(_NEXT,),
    ),
    Shape(
        name="thinking",
        about="an answer with reasoning, which the client sends back",
        messages=(_SYSTEM, _USER),
        reply=_THOUGHT,
        new=(_NEXT,),
    ),
    Shape(
        name="thinking-dropped",
        about="an answer with reasoning, which the client does not send back",
        messages=(_SYSTEM, _USER),
        reply=_THOUGHT,
        echo=_ANSWER,
        new=(_NEXT,),
    ),
    Shape(
        name="thinking-off",
        about="enable_thinking=False, an answer without reasoning",
        messages=(_SYSTEM, _USER),
        reply=_ANSWER,
        new=(_NEXT,),
        template_kwargs={"enable_thinking": False, "thinking": False},
    ),
    Shape(
        name="white-space",
        about="an answer with white space around it",
        messages=(_SYSTEM, _USER),
        reply={**_ANSWER, "content": "\n Answer one. \n\n"},
        new=(_NEXT,),
    ),
    Shape(
        name="tools",
        about="tools are there and not called",
        messages=(_SYSTEM, _USER),
        reply=_ANSWER,
        new=(_NEXT,),
        tools=_TOOLS,
    ),
    Shape(
        name="tool-loop",
        about="a call with reasoning, then its result",
        messages=(_SYSTEM, _USER),
        reply=_REASONED_CALL,
        new=(_RESULT,),
        tools=_TOOLS,
    ),
    Shape(
        name="tool-then-user",
        about="an answer after a call with reasoning, then a new question",
        messages=(_SYSTEM, _USER, _REASONED_CALL, _RESULT),
        reply=_THOUGHT,
        new=(_NEXT,),
        tools=_TOOLS,
    ),
    Shape(
        name="compact-arguments",
        about="a call whose arguments the model wrote without blanks",
        messages=(_SYSTEM, _USER),
        reply=_CALL,
        new=(_RESULT,),
        tools=_TOOLS,
        is_compact=True,
    ),
    Shape(
        name="next-day",
        about="the next question comes a day later",
        messages=(_SYSTEM, _USER),
        reply=_ANSWER,
        new=(_NEXT,),
        gap_s=_DAY_S,
    ),
    Shape(
        name="next-day-no-system",
        about="the same without a system message",
        messages=(_USER,),
        reply=_ANSWER,
        new=(_NEXT,),
        gap_s=_DAY_S,
    ),
)


def with_compact_arguments(
    request: LoggedRequest, renderer: PromptRenderer
) -> LoggedRequest | None:
    """Return `request` with a reply whose arguments have no blanks, as models often write them.

    None where the template does not print them as JSON. Raises `TemplateError`.
    """
    prompt = prompt_of(request)
    written = generated_by(request, prompt, renderer.text(prompt), renderer).text
    if _SPACED not in written:
        return None
    return replace(request, reply_text=written.replace(_SPACED, _COMPACT))
