"""One model's way from messages to token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from warmturn.errors import InvalidRequest
from warmturn.render.messages import Message, normalise
from warmturn.render.model_files import choose_template, load_templates, load_tokenizer_config
from warmturn.render.template import ChatTemplate
from warmturn.render.tokenizer import Tokenizer
from warmturn.types import TokenIds

__all__ = ["RenderedPrompt", "Renderer"]

_RESERVED_KWARGS = frozenset({
    "self", "messages", "now", "tools", "documents", "add_generation_prompt",
    "continue_final_message", "chat_template", "tokenize",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as text and as token ids."""

    text: str
    token_ids: TokenIds
    """`[num_prompt_tokens]`, equal to encoding `text` as a whole."""


class Renderer:
    """Renders conversations for one model. Safe to use from several threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        templates: Mapping[str, str],
        *,
        chat_template: str | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self._wanted = chat_template
        self._templates = dict(templates)
        self._compiled = {
            source: ChatTemplate(source, special_tokens=tokenizer.special_tokens)
            for source in self._sources()
        }

    @classmethod
    def from_directory(cls, path: str | Path, *, chat_template: str | None = None) -> "Renderer":
        """Load tokenizer and chat templates of a Hugging Face model directory.

        `chat_template` is a template, or the name of one of the model's. Without any template
        the renderer still loads, and only rendering fails. Raises `InvalidInput` for missing
        or broken files, `TemplateError` for a template that does not compile.
        """
        directory = Path(path)
        templates = load_templates(directory, load_tokenizer_config(directory))
        tokenizer = Tokenizer.from_directory(directory)
        return cls(tokenizer, templates, chat_template=chat_template)

    def _sources(self) -> list[str]:
        """What requests can choose from; compiled at load so that a bad one is found then."""
        if self._wanted is not None:
            return [choose_template(self._templates, has_tools=False, wanted=self._wanted)]
        return [self._templates[n] for n in ("default", "tool_use") if n in self._templates]

    def template_for(self, *, has_tools: bool) -> ChatTemplate:
        """Return the template of requests with or without tools. Raises `TemplateError`."""
        source = choose_template(self._templates, has_tools=has_tools, wanted=self._wanted)
        return self._compiled[source]

    def render_text(
        self,
        messages: Sequence[Message],
        *,
        now: datetime,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] = {},
    ) -> str:
        """Return the prompt text for OpenAI `messages`.

        Raises `TemplateError` where the template refuses them, `InvalidRequest` where they
        cannot be given to any template.
        """
        _check_options(messages, add_generation_prompt, continue_final_message)
        _check_kwargs(chat_template_kwargs)
        template = self.template_for(has_tools=tools is not None)
        return template.render(
            normalise(messages, content_format=template.content_format),
            now=now,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **chat_template_kwargs,
        )

    def render(
        self,
        messages: Sequence[Message],
        *,
        now: datetime,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] = {},
    ) -> RenderedPrompt:
        """Return the prompt as text and token ids; see `render_text`."""
        text = self.render_text(
            messages,
            now=now,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template_kwargs=chat_template_kwargs,
        )
        return RenderedPrompt(text, self.tokenizer.encode(text))


def _check_options(
    messages: Sequence[Message], add_generation_prompt: bool, continue_final_message: bool
) -> None:
    if not messages:
        raise InvalidRequest("messages is empty; send at least one", param="messages")
    if add_generation_prompt and continue_final_message:
        raise InvalidRequest(
            "add_generation_prompt begins a new message, continue_final_message goes on with "
            "the last: set add_generation_prompt to false to continue",
            param="continue_final_message",
        )


def _check_kwargs(kwargs: Mapping[str, Any]) -> None:
    reserved = sorted(_RESERVED_KWARGS & kwargs.keys())
    if reserved:
        raise InvalidRequest(
            f"chat_template_kwargs cannot set {', '.join(reserved)}; use the request's own field",
            param="chat_template_kwargs",
        )
