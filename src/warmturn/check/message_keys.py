"""Which messages are the same: exactly, as JSON, and loosely, as a person would say.

Two messages are loosely the same when they have the same role and, white space aside, the same
text and calls. Reasoning, ids, and the order of keys make no difference: these are the things
clients change by accident, and a conversation is still the same conversation then.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from warmturn.check.compare import shared_chars
from warmturn.check.shared_messages import SharedMessage

__all__ = [
    "content_text",
    "head_length",
    "is_similar",
    "is_system",
    "loose_key",
    "non_text_parts",
    "same_json",
    "same_text",
    "without_space",
]

_SIMILAR_SHARE = 0.5
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal", "thinking"})


def is_system(message: Mapping[str, Any]) -> bool:
    """Say whether the message gives the model its standing orders."""
    return message.get("role") in {"system", "developer"}


def head_length(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return how many system messages stand at the start."""
    return next((i for i, m in enumerate(messages) if not is_system(m)), len(messages))


def content_text(message: Mapping[str, Any]) -> str:
    """Return the text of the content, parts joined; '' where there is none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        return ""
    return "".join(_text(part) for part in content)


def non_text_parts(message: Mapping[str, Any]) -> list[str]:
    """Return the images and other parts that are no text, each as JSON."""
    content = message.get("content")
    parts = content if isinstance(content, (list, tuple)) else ()
    return [
        json.dumps(part, sort_keys=True)
        for part in parts
        if isinstance(part, dict) and part.get("type") not in _TEXT_TYPES
    ]


def loose_key(message: Mapping[str, Any]) -> int:
    """Return a hash that is equal for messages that are loosely the same."""
    if not isinstance(message, SharedMessage):
        return _loose_key(message)
    if message.loose is None:
        message.loose = _loose_key(message)
    return message.loose


def without_space(text: str) -> str:
    """Return `text` without white space of any kind."""
    return "".join(text.split())


def _loose_key(message: Mapping[str, Any]) -> int:
    text = without_space(content_text(message))
    calls = message.get("tool_calls")
    names = tuple(_call_key(call) for call in calls) if isinstance(calls, (list, tuple)) else ()
    return hash((str(message.get("role")), text, names, tuple(non_text_parts(message))))


def same_json(left: Any, right: Any) -> bool:
    """Say whether two values are equal as parsed JSON, where key order is invisible.

    Unlike in Python, true is not 1.
    """
    if left is right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same_json, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def same_text(left: Any, right: Any) -> bool:
    """Say whether two values are the same JSON text, order of keys included."""
    return left is right or (left == right and json.dumps(left) == json.dumps(right))


def is_similar(left: str, right: str, *, share: float = _SIMILAR_SHARE) -> bool:
    """Say whether two texts share `share` of the shorter one at their ends, or one holds the other."""
    shorter, longer = sorted((left, right), key=len)
    if shorter and shorter in longer:
        return True
    limit = len(shorter)
    before = shared_chars(left, right)
    after = min(limit - before, shared_chars(left[::-1], right[::-1]))
    return limit > 0 and before + after >= share * limit


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") in _TEXT_TYPES:
        return next(
            (v for k in ("text", "refusal", "thinking") if isinstance(v := part.get(k), str)), ""
        )
    return ""


def _call_key(call: Any) -> tuple[str, str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return ("", "")
    return str(function.get("name")), _canonical(function.get("arguments"))


def _canonical(arguments: Any) -> str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return without_space(arguments)
    return json.dumps(arguments, sort_keys=True)
