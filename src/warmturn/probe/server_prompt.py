"""The prompt a server makes of messages, from whichever endpoint it has for that."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warmturn.errors import PeerError
from warmturn.probe.client import Client

__all__ = ["ServerPrompt", "server_prompt"]


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """What the server would serve; one of ids and text is there."""

    path: str
    """The endpoint that told."""
    token_ids: tuple[int, ...] | None
    text: str | None


def server_prompt(client: Client, body: dict[str, Any]) -> ServerPrompt:
    """Ask for the prompt of a chat `body` (model, messages, tools, template arguments).

    Tries vLLM's `/v1/chat/completions/render` and `/tokenize`, then llama.cpp's
    `/apply-template`. Rendering comes first because it reads a chat as the server will serve it:
    vLLM 0.32's `/tokenize` drops `reasoning_content`, which its chat endpoint renders. Raises
    `PeerError` where the server has none of them or refuses all.
    """
    refusals = []
    for path, asked in _questions(body):
        answer = client.try_post(path, asked)
        found = None if isinstance(answer, str) else _prompt_in(path, answer)
        if found is not None:
            return found
        refusals.append(answer if isinstance(answer, str) else f"{path} told no prompt")
    raise PeerError(f"the server shows no prompt of messages: {'; '.join(refusals)}")


def _questions(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    render = "/v1/chat/completions/render"
    yield render, body
    if body.get("tools"):  # vLLM refuses them without a tool parser, but prints them all the same
        yield render, {**body, "tool_choice": "none"}
    yield "/tokenize", body
    yield "/apply-template", body


def _prompt_in(path: str, answer: dict[str, Any]) -> ServerPrompt | None:
    for key in ("tokens", "token_ids", "prompt_token_ids"):
        ids = answer.get(key)
        if isinstance(ids, list) and all(type(token_id) is int for token_id in ids):
            return ServerPrompt(path, tuple(ids), None)
    text = answer.get("prompt")
    return ServerPrompt(path, None, text) if isinstance(text, str) else None
