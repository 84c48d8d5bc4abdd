"""Which earlier prompt a prompt continues, where a log has no messages but text or token ids.

A prompt continues the longest one it begins with. Where no prompt is a prefix of it, something
that was sent was changed, or it is a conversation of its own that has the same system text: it
is taken for a continuation only if the end of the earlier prompt, or its reply, reappears in it,
or if the log gives both one conversation id and they share more than half.

Prompts are found by hashes of their prefixes, one for each `_CHUNK` units; the rest is compared.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from warmturn.check.compare import shared_chars
from warmturn.check.reply import content_of_reply
from warmturn.formats.record import LoggedRequest
from warmturn.types import TokenIds

__all__ = ["Raw", "RawIndex", "raw_of"]

Raw: TypeAlias = str | bytes
"""A prompt to compare: text, or the bytes of int32 ids where the log has no text."""

_ID_BYTES = 4
_CHUNK = 64
"""Characters, or bytes of 16 ids: a block of a paged cache. Less that two share is not looked for."""

_MOST_PER_KEY = 64
_END_FROM, _END_TO = 128, 48
"""The end of a prompt that has to reappear: before a generation prompt, which may be printed anew."""

_TELLING = 16
"""Characters or ids of a reply below which it may be anybody's."""


@dataclass(frozen=True, slots=True)
class _Open:
    number: int
    scope: Hashable
    raw: Raw
    reply: Raw
    keys: tuple[int, ...]


def raw_of(request: LoggedRequest) -> Raw:
    """Return the prompt as text, else as ids."""
    if request.prompt_text is not None:
        return request.prompt_text
    return _bytes(request.prompt_token_ids or ())


class RawIndex:
    """Prompts that can still be continued."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._by_key: dict[int, list[int]] = {}

    def add(self, number: int, request: LoggedRequest) -> None:
        """Remember a prompt under its number in the log."""
        raw = raw_of(request)
        one = _Open(
            number, _scope(request), raw, _reply(request, raw), tuple(_index_keys(request, raw))
        )
        self._open[number] = one
        for key in one.keys:
            numbers = self._by_key.setdefault(key, [])
            numbers.append(number)
            del numbers[:-_MOST_PER_KEY]

    def remove(self, number: int) -> None:
        """Forget a prompt."""
        for key in self._open.pop(number).keys:
            numbers = self._by_key.get(key, [])
            if number in numbers:
                numbers.remove(number)
            if not numbers:
                self._by_key.pop(key, None)

    def parent_of(self, request: LoggedRequest) -> int | None:
        """Return the number of the prompt that `request` continues, None where there is none."""
        raw, scope = raw_of(request), _scope(request)
        whole: _Open | None = None
        changed: _Open | None = None
        for other in self._alike(request, raw):
            if other.scope != scope or type(other.raw) is not type(raw):
                continue
            if 0 < len(other.raw) < len(raw) and raw.startswith(other.raw):  # type: ignore[arg-type]
                if whole is None or _is_better(other, whole, raw):
                    whole = other
            elif changed is None and _reappears(other, raw, has_id=_has_id(request)):
                changed = other
        if whole is not None and changed is not None and changed.number > whole.number:
            # The older prompt may be what is left of a history whose newest turn was changed.
            return changed.number if len(changed.raw) > len(whole.raw) else whole.number
        found = whole or changed
        return None if found is None else found.number

    def has_twin(self, request: LoggedRequest) -> bool:
        """Say whether the same prompt was sent before: a retry."""
        raw, scope = raw_of(request), _scope(request)
        return any(o.raw == raw and o.scope == scope for o in self._alike(request, raw))

    def _alike(self, request: LoggedRequest, raw: Raw) -> Iterator[_Open]:
        """Yield prompts that share a stretch, the longest first, the newest of them first."""
        seen: set[int] = set()
        for key in reversed(list(_keys(request, raw))):
            for number in reversed(self._by_key.get(key, ())):
                if number not in seen:
                    seen.add(number)
                    yield self._open[number]


def _keys(request: LoggedRequest, raw: Raw) -> Iterator[int]:
    """One key for where the request belongs, then one for each chunk of its prompt."""
    key = hash((_scope(request), type(raw)))
    yield key
    for end in range(_CHUNK, len(raw) + 1, _CHUNK):
        key = hash((key, raw[end - _CHUNK : end]))
        yield key


def _index_keys(request: LoggedRequest, raw: Raw) -> Iterator[int]:
    """The first key would find all prompts: it is for short ones, and those that have an id."""
    keys = _keys(request, raw)
    first = next(keys)
    if _has_id(request) or len(raw) < _CHUNK:
        yield first
    yield from keys


def _scope(request: LoggedRequest) -> Hashable:
    return request.conversation_id, request.model, request.adapter, request.cache_salt


def _has_id(request: LoggedRequest) -> bool:
    return request.conversation_id is not None


def _reply(request: LoggedRequest, raw: Raw) -> Raw:
    """Return what of the reply has to come back: its text without reasoning, or its ids."""
    if isinstance(raw, str):
        return (content_of_reply(request) or "").strip()
    return _bytes((request.reply_token_ids or ())[:-1])


def _bytes(ids: tuple[int, ...] | TokenIds) -> bytes:
    return np.asarray(ids, np.int32).tobytes()


def _is_better(other: _Open, known: _Open, raw: Raw) -> bool:
    """Of prompts that are both a prefix: the longer one; of equal ones that with this reply."""
    if len(other.raw) != len(known.raw):
        return len(other.raw) > len(known.raw)
    return _is_answered(other, raw) and not _is_answered(known, raw)


def _is_answered(other: _Open, raw: Raw) -> bool:
    return bool(other.reply) and other.reply in raw[len(other.raw) :]  # type: ignore[operator]


def _reappears(other: _Open, raw: Raw, *, has_id: bool) -> bool:
    shared = _shared(other.raw, raw)
    unit = 1 if isinstance(raw, str) else _ID_BYTES
    if len(other.reply) >= _TELLING * unit and other.reply in raw:  # type: ignore[operator]
        return True
    end = other.raw[-_END_FROM * unit : -_END_TO * unit]
    is_changed_before = shared < len(other.raw) - _END_TO * unit
    if is_changed_before and len(end) == (_END_FROM - _END_TO) * unit and end in raw:  # type: ignore[operator]
        return True
    return has_id and 2 * shared > len(other.raw) and len(raw) > shared


def _shared(left: Raw, right: Raw) -> int:
    if isinstance(left, str) and isinstance(right, str):
        return shared_chars(left, right)
    return shared_chars(left.decode("latin-1"), right.decode("latin-1"))  # type: ignore[union-attr]
