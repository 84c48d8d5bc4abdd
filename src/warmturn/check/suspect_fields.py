"""Suspects inside earlier messages: each restores one kind of field everywhere, and is tried alone."""

import json
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from warmturn.check.experiment import Pair, Trial
from warmturn.check.message_keys import (
    content_text,
    head_length,
    non_text_parts,
    same_json,
    same_text,
)
from warmturn.check.names import Level
from warmturn.check.prompt import Message
from warmturn.check.spans import changed_spans
from warmturn.check.suspect_history import is_same_block

__all__ = [
    "REASONING_FIELDS",
    "normalised",
    "restore_arguments",
    "restore_ids",
    "undo_fields",
]

Restore: TypeAlias = Callable[[Message, Message], Message]

REASONING_FIELDS = (
    "reasoning_content",
    "reasoning",
    "thinking",
    "reasoning_text",
    "thoughts",
    "thought",
)
"""Names under which clients keep reasoning; a template reads one of the first three."""

_MOVED_CHARS = 8


def undo_fields(pair: Pair) -> Iterator[Trial]:
    """Restore one kind of field in all earlier messages, kind by kind, the whole message last."""
    if not pair.alignment.is_in_place:
        return
    changed = _changed_indices(pair)
    for cause, restore in (*_RESTORES, ("client.injected_block_moved", _block_restore(pair))):
        yield from _restored(pair, changed, cause, restore)
    yield from _restored(pair, changed, "client.message_edited", lambda old, _new: old)


def _changed_indices(pair: Pair) -> list[int]:
    old, new = pair.earlier.messages, pair.later.messages
    start = head_length(old)
    pairs = enumerate(zip(old[start:], new[start:], strict=False), start)
    return [i for i, (a, b) in pairs if not same_text(a, b)]


def _restored(pair: Pair, changed: list[int], cause: str, restore: Restore) -> Iterator[Trial]:
    messages = list(pair.later.messages)
    touched = []
    for index in changed:
        old, new = pair.earlier.messages[index], messages[index]
        messages[index] = restore(old, new)
        if messages[index] is not new:
            touched.append(index)
    if not touched:
        return
    first = touched[0]
    before, after = pair.earlier.messages[first], pair.later.messages[first]
    trial = pair.with_later(replace(pair.later, messages=tuple(messages)))
    yield Trial(cause, _level(before, after), trial, _difference(before, after), first)


def _level(before: Message, after: Message) -> Level:
    """Another order of keys is no difference between messages, only between texts."""
    return "text" if same_json(before, after) else "messages"


def restore_ids(old: Message, new: Message) -> Message:
    """Give calls, and results that name a call, their old ids."""
    result = dict(new)
    if old.get("tool_call_id") != new.get("tool_call_id") and "tool_call_id" in old:
        result["tool_call_id"] = old["tool_call_id"]
    if _calls(old) and len(_calls(old)) == len(_calls(new)):
        pairs = zip(_calls(old), _calls(new), strict=True)
        result["tool_calls"] = [b | {"id": a["id"]} if "id" in a else b for a, b in pairs]
    return new if result == new else result


def restore_arguments(old: Message, new: Message, *, wants_equal: bool) -> Message:
    """Give calls their old arguments: `wants_equal` where only the order of keys changed."""
    if not _calls(old) or len(_calls(old)) != len(_calls(new)):
        return new
    calls = [
        _with_arguments(b, _arguments(a))
        if _is_rewritten(_arguments(a), _arguments(b), wants_equal=wants_equal)
        else b
        for a, b in zip(_calls(old), _calls(new), strict=True)
    ]
    # Compared as text: values equal but for key order are the very thing to be found.
    return new if json.dumps(calls) == json.dumps(_calls(new)) else {**new, "tool_calls": calls}


def normalised(text: str) -> str:
    """Return `text` with the differences editors and stores make without being asked taken out."""
    for written, plain in (
        ("\r\n", "\n"),
        ("\u2019", "'"),
        ("\u201c", '"'),
        ("\u201d", '"'),
        ("\u00a0", " "),
    ):
        text = text.replace(written, plain)
    return "".join(unicodedata.normalize("NFKC", text).split())


def _restore_images(old: Message, new: Message) -> Message:
    is_gone = set(non_text_parts(old)) - set(non_text_parts(new))
    return {**new, "content": old["content"]} if is_gone else new


def _restore_reasoning(old: Message, new: Message) -> Message:
    changed = [f for f in REASONING_FIELDS if old.get(f) != new.get(f)]
    if not any(old.get(f) for f in changed):
        return new
    rest = {k: v for k, v in new.items() if k not in changed}
    return rest | {f: old[f] for f in changed if f in old}


def _restore_borders(old: Message, new: Message) -> Message:
    before, after = content_text(old), content_text(new)
    is_trimmed = before != after and before.strip() == after.strip()
    return _with_content(old, new) if is_trimmed and new.get("role") == "assistant" else new


def _restore_characters(old: Message, new: Message) -> Message:
    before, after = content_text(old), content_text(new)
    is_rewritten = before != after and normalised(before) == normalised(after)
    return _with_content(old, new) if is_rewritten and new.get("role") == "assistant" else new


def _block_restore(pair: Pair) -> Restore:
    """Restore messages that lost or gained a block which stands elsewhere before or after."""

    def restore(old: Message, new: Message) -> Message:
        before, after = content_text(old), content_text(new)
        if before == after:
            return new
        spans = changed_spans(before, after)
        sides = [(before[s.old_start : s.old_end], after[s.new_start : s.new_end]) for s in spans]
        lost = [old_side for old_side, new_side in sides if not new_side.strip()]
        gained = [new_side for old_side, new_side in sides if not old_side.strip()]
        moved = any(_stands_elsewhere(b, pair.later.messages, new) for b in lost) or any(
            _stands_elsewhere(b, pair.earlier.messages, old) for b in gained
        )
        return _with_content(old, new) if moved else new

    return restore


def _stands_elsewhere(block: str, messages: tuple[Message, ...], home: Message) -> bool:
    if len(block.strip()) < _MOVED_CHARS:
        return False
    return any(m is not home and is_same_block(block, content_text(m)) for m in messages)


def _with_content(old: Message, new: Message) -> Message:
    return {**new, "content": old.get("content")}


def _calls(message: Message) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return [c for c in calls if isinstance(c, dict)] if isinstance(calls, (list, tuple)) else []


def _arguments(call: dict[str, Any]) -> Any:
    function = call.get("function")
    return function.get("arguments") if isinstance(function, dict) else None


def _with_arguments(call: dict[str, Any], arguments: Any) -> dict[str, Any]:
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _is_rewritten(old: Any, new: Any, *, wants_equal: bool) -> bool:
    if json.dumps(old) == json.dumps(new):
        return False
    return same_json(_parsed(old), _parsed(new)) is wants_equal


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _difference(old: Message, new: Message) -> str:
    before, after = (json.dumps(m, ensure_ascii=False) for m in (old, new))
    spans = changed_spans(before, after)
    if not spans:
        return "the same fields in another order"
    span = spans[0]
    left = max(0, span.old_start - 16)
    return (
        f"{_short(before[left : span.old_end + 8])} became "
        f"{_short(after[max(0, span.new_start - 16) : span.new_end + 8])}"
    )


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."


_RESTORES: tuple[tuple[str, Restore], ...] = (
    ("client.tool_call_id_rewritten", restore_ids),
    ("client.tool_args_key_order", lambda a, b: restore_arguments(a, b, wants_equal=True)),
    ("client.tool_args_rewritten", lambda a, b: restore_arguments(a, b, wants_equal=False)),
    ("client.image_pruned", _restore_images),
    ("client.reasoning_not_echoed", _restore_reasoning),
    ("client.content_trimmed", _restore_borders),
    ("client.content_normalised", _restore_characters),
)
