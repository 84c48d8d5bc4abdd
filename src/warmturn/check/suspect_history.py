"""Suspects in the order of the history: messages dropped, summarised, moved or put in."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from warmturn.check.experiment import Pair, Trial
from warmturn.check.message_keys import content_text, head_length, is_system, loose_key
from warmturn.check.prompt import Message

__all__ = ["is_same_block", "undo_history"]

_PINNED = 2
"""Messages behind the system text that a window may keep for ever: the task, and its answer."""

_FRAME_CHARS = 12
"""Blocks that begin with this many equal characters are versions of one block."""


def undo_history(pair: Pair) -> Iterator[Trial]:
    """Put back what is gone and take out what was put in."""
    found = pair.alignment
    if found.is_in_place:
        return
    old, new = pair.earlier.messages, pair.later.messages
    gone = old[found.head : found.head + found.num_dropped]
    put_in = new[found.head : found.head + found.num_put_in]
    if gone and _all_appear(gone, new[found.head :]):
        messages = (*new[: found.head], *gone, *new[found.head :])
        names = ", ".join(_quoted(message) for message in gone)
        yield _trial(pair, messages, "client.injected_block_moved", f"moved to the end: {names}")
        return
    messages = (*new[: found.head], *gone, *new[found.head + found.num_put_in :])
    cause, detail = _named(pair, gone, put_in)
    facts = {"slide_by_messages": len(gone)} if cause.endswith("window_slide") else {}
    yield replace(_trial(pair, messages, cause, detail), facts=facts)


def is_same_block(block: str, text: str) -> bool:
    """Say whether `block`, or another version of it, stands in `text`."""
    bare = block.strip()
    frame = bare[:_FRAME_CHARS]
    return bool(bare) and (bare in text or (len(frame) == _FRAME_CHARS and frame in text))


def _named(pair: Pair, gone: Sequence[Message], put_in: Sequence[Message]) -> tuple[str, str]:
    is_at_start = pair.alignment.head <= head_length(pair.earlier.messages) + _PINNED
    if not gone:
        return "client.message_edited", f"put into the history: {_quoted(put_in[0])}"
    if _is_relabelled(gone, put_in):
        return "client.message_edited", f"now a {put_in[0].get('role')} message: {_quoted(gone[0])}"
    if any(is_system(message) for message in gone):
        return "client.message_edited", f"a system message was taken out: {_quoted(gone[0])}"
    if not is_at_start:
        return "client.message_edited", f"{len(gone)} messages were taken out of the history"
    if put_in:
        detail = f"{len(gone)} old messages were replaced by {_quoted(put_in[0])}"
        return "client.history_summarised", detail
    detail = f"the window moved by {len(gone)} messages; the first one gone: {_quoted(gone[0])}"
    return "client.history_window_slide", detail


def _is_relabelled(gone: Sequence[Message], put_in: Sequence[Message]) -> bool:
    return len(gone) == len(put_in) == 1 and content_text(gone[0]) == content_text(put_in[0])


def _all_appear(gone: Sequence[Message], later: Sequence[Message]) -> bool:
    """Say whether each of a few messages stands further down, perhaps in a newer version."""
    if len(gone) > _PINNED or any(m.get("role") == "assistant" for m in gone):
        return False
    keys = {loose_key(message) for message in later}
    return all(
        loose_key(message) in keys
        or any(
            message.get("role") == other.get("role")
            and is_same_block(content_text(message), content_text(other)[:200])
            and _is_marked(content_text(message))
            for other in later
        )
        for message in gone
    )


def _is_marked(text: str) -> bool:
    """Say whether the text looks written by a program: in tags, brackets or under a heading."""
    return text.strip()[:1] in {"<", "[", "{", "#", "("}


def _trial(pair: Pair, messages: Sequence[Message], cause: str, detail: str) -> Trial:
    trial = pair.with_later(replace(pair.later, messages=tuple(messages)))
    return Trial(cause, "messages", trial, detail, pair.alignment.head)


def _quoted(message: Message) -> str:
    text = content_text(message) or str(message.get("role"))
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
