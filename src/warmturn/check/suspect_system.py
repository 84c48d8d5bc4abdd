"""Suspects in the system text: a clock, a value that always changes, data of one user."""

import re
from collections.abc import Iterator
from dataclasses import replace

from warmturn.check.experiment import Pair, Trial
from warmturn.check.message_keys import content_text, head_length
from warmturn.check.prompt import Message, Prompt
from warmturn.check.spans import changed_spans, replace_spans
from warmturn.check.volatile import Changed, classify

__all__ = ["SUMMARY_WORDS", "undo_system"]

SUMMARY_WORDS = re.compile(
    r"summar|recap|so far|compact|earlier conversation|previously|previous conversation|continued from|conversation history|"
    r"zusammenfass|bisher|verlauf|résum|resum|riassunt|摘要|总结|要約",
    re.IGNORECASE,
)

_PROSE_WORDS = 12
_PROSE_CHARS = 80


def undo_system(pair: Pair) -> Iterator[Trial]:
    """Put back, kind by kind, what changed in the system messages at the head."""
    old_head, new_head = head_length(pair.earlier.messages), head_length(pair.later.messages)
    if old_head != new_head:
        if not pair.alignment.is_in_place:
            return  # a summary or a block among the system messages: the history's business
        yield _whole_head(pair, old_head, new_head)
        return
    for index in range(old_head):
        yield from _spans_at(pair, index)


def _whole_head(pair: Pair, old_head: int, new_head: int) -> Trial:
    messages = (*pair.earlier.messages[:old_head], *pair.later.messages[new_head:])
    trial = pair.with_later(replace(pair.later, messages=messages))
    detail = f"{old_head} system messages at the start became {new_head}"
    return Trial("client.message_edited", "messages", trial, detail, min(old_head, new_head))


def _spans_at(pair: Pair, index: int) -> Iterator[Trial]:
    old, new = pair.earlier.messages[index], pair.later.messages[index]
    if old == new:
        return
    before, after = old.get("content"), new.get("content")
    old_text, new_text = content_text(old), content_text(new)
    changes = classify(old_text, new_text, changed_spans(old_text, new_text))
    if not (isinstance(before, str) and isinstance(after, str)):
        yield from _whole_message(pair, index, changes)
        return
    if any(_is_summary(pair, new_text, change) for change in changes):
        yield _summary(pair, index)
    for kind in dict.fromkeys(change.kind for change in changes):
        same = [change for change in changes if change.kind == kind]
        text = replace_spans(after, before, [change.span for change in same])
        trial = pair.with_later(_with_message(pair.later, index, {**new, "content": text}))
        yield Trial(kind, "messages", trial, _described(same), index)


def _whole_message(pair: Pair, index: int, changes: list[Changed]) -> Iterator[Trial]:
    """Content in parts is put back as a whole."""
    trial = pair.with_later(_with_message(pair.later, index, pair.earlier.messages[index]))
    kind = changes[0].kind if changes else "client.message_edited"
    yield Trial(kind, "messages", trial, _described(changes) or "parts differ", index)


def _is_summary(pair: Pair, text: str, change: Changed) -> bool:
    """Say whether old messages gave way to this text: it says so, or it is prose and they are gone."""
    if pair.alignment.num_dropped == 0:
        return False
    start, end = change.span.new_start, change.span.new_end
    is_long = len(text[start:end].split()) >= _PROSE_WORDS
    return is_long or bool(SUMMARY_WORDS.search(text, max(0, start - _PROSE_CHARS), end))


def _summary(pair: Pair, index: int) -> Trial:
    """The summary stands in the system text and old messages are gone: undo both."""
    found = pair.alignment
    restored = _with_message(pair.later, index, pair.earlier.messages[index]).messages
    dropped = pair.earlier.messages[found.head : found.head + found.num_dropped]
    rest = restored[found.head + found.num_put_in :]
    trial = pair.with_later(
        replace(pair.later, messages=(*restored[: found.head], *dropped, *rest))
    )
    detail = f"{found.num_dropped} old messages were replaced by a summary in the system text"
    return Trial("client.history_summarised", "messages", trial, detail, index)


def _with_message(prompt: Prompt, index: int, message: Message) -> Prompt:
    messages = (*prompt.messages[:index], message, *prompt.messages[index + 1 :])
    return replace(prompt, messages=messages)


def _described(changes: list[Changed]) -> str:
    return "; ".join(
        f"{'' if change.key is None else f'{change.key}: '}{_short(change.old)} became {_short(change.new)}"
        for change in changes[:4]
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
