"""Plays a conversation on a server and keeps the ids: what it generated, what it rendered next."""

from collections.abc import Iterator, Sequence
from typing import Any

from warmturn.errors import PeerError
from warmturn.formats import LoggedRequest
from warmturn.probe.client import Client, Message

__all__ = ["QUESTIONS", "replay", "user_turns"]

QUESTIONS: tuple[Message, ...] = (
    {"role": "system", "content": "You answer questions about everyday things in a few words."},
    {"role": "user", "content": "Name three things one finds in a kitchen."},
    {"role": "user", "content": "Write a line of JSON with the first two, and their colours."},
    {"role": "user", "content": "Which of the three is the heaviest? Say why in one sentence."},
    {"role": "user", "content": "Thanks. Repeat my first question word for word."},
)
"""A conversation for servers of which there is no log."""


def user_turns(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return what the client wrote of a conversation: replies and tool results left out."""
    return tuple(m for m in messages if m.get("role") in {"system", "developer", "user"})


def replay(
    client: Client,
    turns: Sequence[Message],
    *,
    model: str,
    salt: str | None = None,
    max_reply_tokens: int = 64,
    name: str = "replay",
) -> Iterator[LoggedRequest]:
    """Send the conversation turn by turn, greedily, each reply sent back as a client does.

    Yields each request with prompt and generated ids as the server reports them
    (`return_token_ids`), ready for the checker. Raises `PeerError` where it reports none.
    """
    sent: list[Message] = []
    fields: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": max_reply_tokens}
    if salt is not None:
        fields["cache_salt"] = salt
    for message in turns:
        sent.append(message)
        if message["role"] != "user":
            continue
        answer = client.chat(list(sent), **fields)
        if not answer.prompt_token_ids:
            raise PeerError(
                "the server reports no token ids (return_token_ids); without them a replay "
                "cannot tell drift from the chat text"
            )
        yield LoggedRequest(
            source=name,
            line=len(sent),
            level="full",
            request_id=f"{name}-{len(sent)}",
            conversation_id=name,
            model=model,
            cache_salt=salt,
            messages=tuple(sent),
            prompt_token_ids=answer.prompt_token_ids,
            reply_token_ids=answer.token_ids,
            reply={"role": "assistant", "content": answer.text},
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            completion_tokens=len(answer.token_ids),
        )
        sent.append({"role": "assistant", "content": answer.text})
