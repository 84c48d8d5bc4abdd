"""Does the server render what we render? Counter-rendering, with the server as the reference.

Locally one thing after the other is done to the messages that servers are known to do to them;
what makes the local prompt equal to the server's is what the server does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from warmturn.check import blame_of, compare_renderings
from warmturn.check.compare import shared_chars
from warmturn.check.names import Blame
from warmturn.check.prompt import Prompt, PromptRenderer, prompt_of
from warmturn.check.tokens import Encoder
from warmturn.errors import InvalidInput
from warmturn.formats import LoggedRequest
from warmturn.probe.client import Client
from warmturn.probe.server_prompt import ServerPrompt, server_prompt

__all__ = ["RenderingCheck", "chat_body", "check_rendering"]

_REASONING_FIELDS = ("reasoning", "reasoning_content", "thinking")
_BEFORE, _AFTER = 48, 48
_MOST_ADDED = 3
"""Special tokens a server may put in front: begin tokens, once or twice."""


@dataclass(frozen=True, slots=True)
class RenderingCheck:
    """One request, rendered here and by the server."""

    request_id: str
    path: str
    """The server's endpoint that told its prompt."""
    causes: tuple[str, ...]
    """Why the prompts differ; empty where they are equal."""
    detail: str
    shared_chars: int
    local_at: str
    server_at: str
    fix: str | None = None
    """A change that was tried on this server and made the prompts equal."""

    @property
    def is_equal(self) -> bool:
        """Whether both prompts are equal."""
        return not self.causes

    @property
    def blame(self) -> Blame:
        """Whose fault the first cause is."""
        return blame_of(self.causes[0]) if self.causes else "nobody"


@dataclass(frozen=True, slots=True)
class _Habit:
    """Something servers do to a request before they render it."""

    cause: str
    detail: str
    apply: Callable[[Prompt], Prompt]
    parses_arguments: bool = False


def check_rendering(
    client: Client,
    request: LoggedRequest,
    *,
    model: str,
    renderer: PromptRenderer,
    tokenizer: Encoder,
) -> RenderingCheck:
    """Compare the server's prompt for `request` with the local one.

    Raises `PeerError` where the server does not tell its prompt, `TemplateError` where the
    local template refuses the messages, `InvalidInput` for a request without messages.
    """
    if request.messages is None:
        raise InvalidInput(f"{request.source}:{request.line} has no messages to render")
    prompt = prompt_of(request)
    local = _verbatim_text(prompt, renderer)
    body = chat_body(request, model=model)
    server = server_prompt(client, body)
    found = _explained(prompt, local, server, renderer, tokenizer)
    text = _text_of(server, tokenizer)
    shared = shared_chars(local, text)
    start, end = max(0, shared - _BEFORE), shared + _AFTER
    return RenderingCheck(
        request.request_id or f"{request.source}:{request.line}",
        server.path,
        tuple(cause for cause, _ in found),
        "; ".join(detail for _, detail in found),
        shared,
        local[start:end],
        text[start:end],
        _tried_fix(client, body, local, found, tokenizer),
    )


def chat_body(request: LoggedRequest, *, model: str) -> dict[str, Any]:
    """Return the body with which a server is asked for the prompt of `request`."""
    body: dict[str, Any] = {
        "model": model,
        "messages": list(request.messages or ()),
        "add_generation_prompt": True,
    }
    if request.tools:
        body["tools"] = list(request.tools)
    if request.template_kwargs:
        body["chat_template_kwargs"] = dict(request.template_kwargs)
    return body


def _explained(
    prompt: Prompt,
    local: str,
    server: ServerPrompt,
    renderer: PromptRenderer,
    tokenizer: Encoder,
) -> list[tuple[str, str]]:
    """Return causes with their details: what makes the local prompt equal to the server's."""
    if _is_equal(local, server, tokenizer):
        return []
    habits = list(_habits(prompt))
    for size in range(1, len(habits) + 1):
        for chosen in combinations(habits, size):
            if _is_equal(_text_with(prompt, chosen, renderer), server, tokenizer):
                return [(habit.cause, habit.detail) for habit in chosen]
    return [_unexplained(local, server, tokenizer)]


def _habits(prompt: Prompt) -> Iterator[_Habit]:
    """Yield what servers may do, as far as it can change this request."""
    if any(isinstance(text, str) for text in _arguments(prompt)):
        yield _Habit(
            "server.arguments_reparsed",
            "the server parses the arguments of tool calls and writes them again",
            lambda same: same,
            parses_arguments=True,
        )
    sent = sorted({f for m in prompt.messages for f in _REASONING_FIELDS if m.get(f)})
    if sent:
        detail = f"the server does not read the reasoning sent as {', '.join(sent)}"
        yield _Habit("client.reasoning_wrong_field", detail, _without_reasoning)
    if prompt.kwargs:
        detail = f"the server ignores chat_template_kwargs ({', '.join(prompt.kwargs)})"
        yield _Habit("server.template_kwargs_ignored", detail, lambda p: replace(p, kwargs={}))
    if prompt.tools:
        yield _Habit(
            "server.tools_completed",
            "the server writes tools with fields and an order of its own (a description of null)",
            lambda p: replace(p, tools=tuple(map(_completed_tool, p.tools or ()))),
        )
        detail = "the server leaves the tools out of the prompt"
        yield _Habit("server.tools_not_rendered", detail, lambda p: replace(p, tools=None))


def _text_with(prompt: Prompt, habits: Sequence[_Habit], renderer: PromptRenderer) -> str:
    for habit in habits:
        prompt = habit.apply(prompt)
    if any(habit.parses_arguments for habit in habits):
        return renderer.text(prompt)
    return _verbatim_text(prompt, renderer)


def _verbatim_text(prompt: Prompt, renderer: PromptRenderer) -> str:
    """Render arguments as the client sent them, where the template prints a text as it is."""
    verbatim = renderer.text(prompt, parses_arguments=False)
    texts = [text for text in _arguments(prompt) if isinstance(text, str)]
    return verbatim if all(text in verbatim for text in texts) else renderer.text(prompt)


def _arguments(prompt: Prompt) -> Iterator[Any]:
    for message in prompt.messages:
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                yield function.get("arguments")


def _without_reasoning(prompt: Prompt) -> Prompt:
    messages = tuple(
        {key: value for key, value in message.items() if key not in _REASONING_FIELDS}
        for message in prompt.messages
    )
    return replace(prompt, messages=messages)


def _completed_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as vLLM writes it after reading: known fields only, in its order."""
    given = tool.get("function")
    function = given if isinstance(given, Mapping) else {}
    written = {name: function.get(name) for name in ("name", "description", "parameters")}
    if function.get("strict") is not None:
        written["strict"] = function["strict"]
    rest = {key: value for key, value in tool.items() if key not in {"type", "function"}}
    return {"type": tool.get("type", "function"), "function": written, **rest}


def _unexplained(local: str, server: ServerPrompt, tokenizer: Encoder) -> tuple[str, str]:
    """Name a difference that nothing done to the messages explains."""
    text = _text_of(server, tokenizer)
    if server.token_ids is not None:
        ids = tuple(map(int, tokenizer.encode(local)))
        for added in range(1, _MOST_ADDED + 1):
            if server.token_ids[added:] == ids:
                shown = _decoded(server.token_ids[:added], tokenizer)
                return (
                    "server.special_tokens_added_twice",
                    f"the server puts {shown!r} in front of a prompt that is complete",
                )
        if text == local:
            return "server.tokenizer_differs", "equal text, but the server has other token ids"
    if compare_renderings(local, text).cause == "renderer.tojson_mismatch":
        return "renderer.tojson_mismatch", "the server writes the same JSON in another way"
    return "server.template_differs", "the server renders with another template, or other values"


def _tried_fix(
    client: Client,
    body: dict[str, Any],
    local: str,
    found: list[tuple[str, str]],
    tokenizer: Encoder,
) -> str | None:
    """Send the reasoning under each name in turn, to find the one this server reads."""
    if [cause for cause, _ in found] != ["client.reasoning_wrong_field"]:
        return None
    for name in _REASONING_FIELDS:
        renamed = {**body, "messages": [_renamed(m, name) for m in body["messages"]]}
        if _is_equal(local, server_prompt(client, renamed), tokenizer):
            return f"send the reasoning back as '{name}': this server then renders it"
    return None


def _renamed(message: Mapping[str, Any], name: str) -> dict[str, Any]:
    texts = [message[field] for field in _REASONING_FIELDS if message.get(field)]
    rest = {key: value for key, value in message.items() if key not in _REASONING_FIELDS}
    return {**rest, name: texts[0]} if texts else rest


def _is_equal(local: str, server: ServerPrompt, tokenizer: Encoder) -> bool:
    if server.token_ids is None:
        return local == server.text
    return tuple(map(int, tokenizer.encode(local))) == server.token_ids


def _text_of(server: ServerPrompt, tokenizer: Encoder) -> str:
    if server.text is not None:
        return server.text
    return _decoded(server.token_ids or (), tokenizer)


def _decoded(token_ids: Sequence[int], tokenizer: Encoder) -> str:
    return tokenizer.decode(np.asarray(token_ids, np.int32), skip_special_tokens=False)
