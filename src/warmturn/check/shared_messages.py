"""Messages that come again with every turn, kept once.

A turn sends its whole history again, parsed anew. Equal messages become one object, so that what
is known of a message (its loose key, its form for a template) is found out once.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from warmturn.formats.record import LoggedRequest

__all__ = ["SharedMessage", "SharedMessages"]

_CAPACITY_BYTES = 32 * 1024 * 1024
"""JSON of the messages remembered, the used half and the one before: a thousand open prompts."""


class SharedMessage(dict[str, Any]):
    """A message (or a tool) that others hold too: not to be changed. Copies are plain."""

    __slots__ = ("forms", "loose")

    forms: dict[Any, Any]
    """What renderers made of it."""
    loose: int | None
    """See `message_keys.loose_key`."""

    def __init__(self, message: dict[str, Any]) -> None:
        super().__init__(message)
        self.forms = {}
        self.loose = None


class SharedMessages:
    """Finds messages equal to the last bit of their JSON, order of keys included.

    Bounded as two generations: what is not met again while one fills is forgotten.
    """

    def __init__(self, *, capacity_bytes: int = _CAPACITY_BYTES) -> None:
        self._half_bytes = capacity_bytes // 2
        self._young: dict[bytes, SharedMessage] = {}
        self._old: dict[bytes, SharedMessage] = {}
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def share(self, request: LoggedRequest) -> LoggedRequest:
        """Return the request with its messages, its tools and its reply shared."""
        messages, tools = request.messages, request.tools
        return replace(
            request,
            messages=None if messages is None else self._shared(messages),
            tools=None if tools is None else self._shared(tools),
            # It comes back in the next turn's messages.
            reply=None if request.reply is None else self._one(request.reply),
        )

    def _shared(self, messages: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        return tuple(map(self._one, messages))

    def _one(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            key = msgspec.json.encode(message)
        except (TypeError, ValueError):  # no JSON, a lone surrogate: the renderer will say so
            return message
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            self._remember(key, found := SharedMessage(message) if found is None else found)
        return found

    def _remember(self, key: bytes, message: SharedMessage) -> None:
        self._young[key] = message
        self._num_bytes += len(key)
        if self._num_bytes > self._half_bytes:
            self._old, self._young, self._num_bytes = self._young, {}, 0
