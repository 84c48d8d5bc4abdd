"""What a conversation's new messages add to its prompt, at the price of the new messages.

Most templates only append: the text of a message does not change when others follow. The new ones
are then written behind a stub of one or two messages, whose own text is known and cut off:

    template(stub)               s s s o o         o: opens the reply, no part of the history
    template(stub + new)         s s s n n n n o o
                                       ^^^^^^^

Whether that is what the whole prompt ends with, only a whole rendering can tell. Templates look at
roles and fields, so tails are told apart by those: a kind that was wrong once is never written this
way again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from warmturn.errors import TemplateError
from warmturn.render.messages import Message
from warmturn.render.renderer import Renderer

__all__ = ["Framing", "Kind", "Opened", "TailProofs", "TailRenderer", "kind_of"]

_SYSTEM: Message = {"role": "system", "content": "."}
_USER: Message = {"role": "user", "content": "."}
_STUBS: tuple[tuple[Message, ...], ...] = (
    (_SYSTEM,),
    (_SYSTEM, _USER),
    (_USER,),
    (_USER, {"role": "assistant", "content": "."}),
)
"""The first that the template takes: some know no system role, some want roles to alternate."""
_MAX_KINDS = 1024
_ALWAYS_PROVED, _DEPTHS = 3, 2

Kind: TypeAlias = tuple[tuple[str, ...], ...]
"""Per message its role and its fields."""


@dataclass(frozen=True, slots=True)
class Framing:
    """What stands around the messages of a request: equal for all turns of most conversations."""

    now: datetime
    tools: Sequence[Mapping[str, Any]] | None = None
    kwargs: Mapping[str, Any] | None = None
    """`chat_template_kwargs`."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A prompt, or the end of one, in two parts."""

    history: str
    """Of the messages."""
    opening: str
    """What opens the reply; in the next turn's prompt the reply's message stands in its place."""


class TailProofs:
    """Which kinds of tails may be relied on; one for each template."""

    def __init__(self) -> None:
        self.refuted: set[Kind] = set()
        """Kinds whose tails were not what the whole prompt ended with."""
        self._num_seen: dict[tuple[Kind, int], int] = {}

    def is_wanted(self, kind: Kind, *, num_tails: int) -> bool:
        """Say whether this tail should be compared with a whole rendering.

        The first few of each kind are, then ever fewer: the 4th, 8th, 16th, 32nd ... Counted apart
        for a conversation's first tail and its next ones (`num_tails` before this one): a template
        that numbers messages is right about the first one by chance, as the stub is as long.
        """
        counted = kind, min(num_tails, _DEPTHS)
        num = self._num_seen.get(counted, 0) + 1
        if len(self._num_seen) >= _MAX_KINDS:
            self._num_seen.clear()
        self._num_seen[counted] = num
        return num <= _ALWAYS_PROVED or num & (num - 1) == 0

    def refute(self, kind: Kind) -> None:
        """Tails of this kind are wrong: such conversations are rendered as a whole from now on."""
        if len(self.refuted) < _MAX_KINDS:
            self.refuted.add(kind)

    def allows(self, kind: Kind) -> bool:
        """Say whether tails of this kind may be written."""
        return kind not in self.refuted and len(self.refuted) < _MAX_KINDS


class TailRenderer:
    """Writes prompts and their tails within one framing."""

    def __init__(self, renderer: Renderer, framing: Framing) -> None:
        self._renderer, self._framing = renderer, framing
        self._openings: dict[int, Opened] = {}

    def whole(self, messages: Sequence[Message]) -> Opened:
        """Return the whole prompt of `messages`. Raises as `Renderer.render_text` does."""
        return self._parted(self._text(messages), self._known_opening())

    def tail(self, new: Sequence[Message]) -> Opened | None:
        """Return what `new` adds, were the template to append; None where it refuses each stub."""
        for number, stub in enumerate(_STUBS):
            try:
                before = self._stub(number)
                text = self._text((*stub, *new)) if new else before.history + before.opening
            except TemplateError:
                continue
            if text.startswith(before.history):
                return self._parted(text[len(before.history) :], before.opening)
        return None

    def _known_opening(self) -> str:
        for number in range(len(_STUBS)):
            try:
                return self._stub(number).opening
            except TemplateError:
                continue
        return ""

    def _stub(self, number: int) -> Opened:
        known = self._openings.get(number)
        if known is None:
            history = self._text(_STUBS[number], is_open=False)
            text = self._text(_STUBS[number])
            opening = text[len(history) :] if text.startswith(history) else ""
            known = self._openings[number] = Opened(history, opening)
        return known

    @staticmethod
    def _parted(text: str, opening: str) -> Opened:
        """Cut the opening off; where it is not the expected one, all of it counts as history."""
        if opening and text.endswith(opening):
            return Opened(text[: -len(opening)], opening)
        return Opened(text, "")

    def _text(self, messages: Sequence[Message], *, is_open: bool = True) -> str:
        framing = self._framing
        return self._renderer.render_text(
            messages,
            now=framing.now,
            tools=framing.tools,
            add_generation_prompt=is_open,
            chat_template_kwargs=framing.kwargs or {},
        )


def kind_of(messages: Sequence[Message]) -> Kind:
    """Return what a template can tell these messages apart by, their texts aside."""
    return tuple((str(m.get("role")), *sorted(map(str, m))) for m in messages)
