"""One chat template: compiled once, rendered many times, every failure a `TemplateError`.

The text equals that of transformers' `render_jinja_template`; tests/agreement proves it over a
corpus of templates. What the sandbox cannot bound is time: a template comes with its model
and is trusted to end.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

import jinja2
from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from warmturn.errors import TemplateError
from warmturn.render.bounded_text import bounded_text
from warmturn.render.by_message import ByMessage, by_message
from warmturn.render.content_format import ContentFormat, content_format
from warmturn.render.environment import chat_environment
from warmturn.render.messages import Message, PlainMessage, alias_reasoning, plain_copy

__all__ = ["ChatTemplate"]

_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
"""transformers' own marker: templates may measure the content, so its length must agree too."""


class ChatTemplate:
    """A compiled chat template with the special tokens its model's tokenizer names.

    Immutable, and safe to use from several threads. Raises `TemplateError` where `source` is
    not valid Jinja.
    """

    def __init__(self, source: str, *, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self.special_tokens = dict(special_tokens)
        self._compiled = _compile(source)

    @cached_property
    def content_format(self) -> ContentFormat:
        """Whether the template walks through content parts or wants one string."""
        return content_format(_environment().parse(self.source))

    def render(
        self,
        messages: Sequence[Message],
        *,
        now: datetime,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """Return the prompt text for `messages`, which are taken as they are and not changed.

        `kwargs` are variables for the template and win over special tokens. `now` is what
        `strftime_now` shows. Raises `TemplateError` for whatever goes wrong in the template.
        """
        try:
            if continue_final_message:  # which writes into the last one
                messages = [dict(message) for message in messages]
            chat = _ready(messages) or alias_reasoning(plain_copy(list(messages)))
            continued = _tag_final_content(chat, self.source) if continue_final_message else None
            variables = {
                "strftime_now": now.strftime,
                **self.special_tokens,
                **plain_copy(kwargs),
                "messages": chat,
                "tools": plain_copy(tools),
                "documents": plain_copy(documents),
                "add_generation_prompt": add_generation_prompt,
            }
            text = self._written(variables, now) or bounded_text(self._compiled, variables)
        except TemplateError:
            raise
        # A template is foreign code: any exception of its own making is its refusal.
        except Exception as error:
            raise _refusal(error) from error
        return text if continued is None else _cut_at_tag(text, continued)

    def _written(self, variables: Mapping[str, Any], now: datetime) -> str | None:
        """Put the text together from what was written before; only of messages made ready for it."""
        if not any(type(message) is PlainMessage for message in variables["messages"]):
            return None
        return None if self._by_message is None else self._by_message.text(variables, now=now)

    @cached_property
    def _by_message(self) -> ByMessage | None:
        return by_message(self.source, _environment())


def _ready(messages: Sequence[Message]) -> list[Any] | None:
    """Return messages that were all made ready before."""
    return list(messages) if set(map(type, messages)) == {PlainMessage} else None


@lru_cache(maxsize=1)
def _environment() -> ImmutableSandboxedEnvironment:
    return chat_environment()


@lru_cache(maxsize=64)
def _compile(source: str) -> Template:
    """Compiling costs milliseconds, a render microseconds: a gateway serves few templates."""
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(
            f"the chat template is not valid Jinja: line {error.lineno}: {error.message}; "
            "correct the template or name another one",
            param="chat_template",
        ) from error
    except (RecursionError, OverflowError, MemoryError, ValueError) as error:
        raise TemplateError(
            f"the chat template cannot be compiled: {_named(error)}; simplify it",
            param="chat_template",
        ) from error


def _tag_final_content(chat: list[dict[str, Any]], source: str) -> str:
    """Append the tag to the last message's text and return that text as it was."""
    content = chat[-1].get("content") if chat else None
    if content is None or "content" not in source:
        raise _cannot_continue("the last message has no content that the template reads")
    if isinstance(content, str):
        chat[-1]["content"] = content + _CONTINUE_TAG
        return content
    for part in reversed(content):
        if "text" in part:
            text: str = part["text"]
            part["text"] = text + _CONTINUE_TAG
            return text
    raise _cannot_continue("no part of the last message is text")


def _cut_at_tag(text: str, continued: str) -> str:
    """Cut `text` where the continued message ends; a template that trims loses trailing space."""
    start = text.rfind(_CONTINUE_TAG.strip())
    if start < 0 or continued.strip() not in text:
        raise _cannot_continue("the template leaves out or rewrites the last message")
    is_untrimmed = text.startswith(_CONTINUE_TAG, start)
    return text[:start] if is_untrimmed else text[:start].rstrip()


def _cannot_continue(reason: str) -> TemplateError:
    return TemplateError(
        f"continue_final_message was asked for, but {reason}; send a last message with text, "
        "or leave continue_final_message out",
        param="continue_final_message",
    )


def _refusal(error: Exception) -> TemplateError:
    if type(error) is jinja2.TemplateError:  # raise_exception: the template's own words
        message = f"the chat template refused the messages: {error.message}"
    else:
        message = (
            f"the chat template failed on the messages: {_named(error)}; "
            "change the messages to what the template expects"
        )
    return TemplateError(message, param="messages")


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
