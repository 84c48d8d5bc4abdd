"""How the message list of a later request continues that of an earlier one.

    earlier   [head][dropped][ kept      ]
    later     [head][put in ][ kept      ][echo][new ...]

An appended list has nothing dropped and nothing put in. Messages are compared loosely.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warmturn.check.message_keys import (
    head_length,
    is_system,
    loose_key,
)

__all__ = ["Alignment", "align"]

_MOST_PUT_IN = 4
"""A summary is one message, or a question for it and an answer, rarely with a note on each side."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Where both lists agree; see the drawing above. Counts are messages."""

    head: int
    num_dropped: int
    num_put_in: int
    num_kept: int

    @property
    def is_in_place(self) -> bool:
        """Whether every earlier message still stands at its old index, edited or not."""
        return self.num_dropped == self.num_put_in == 0

    @property
    def echo_index(self) -> int:
        """Index in the later list of the message behind all earlier ones: the reply sent back."""
        return self.head + self.num_put_in + self.num_kept


def align(earlier: Sequence[dict[str, Any]], later: Sequence[dict[str, Any]]) -> Alignment:
    """Return the alignment that keeps most messages exactly; in doubt, none was dropped."""
    before, after = [loose_key(m) for m in earlier], [loose_key(m) for m in later]
    if after[: len(before)] == before:
        return Alignment(len(before), 0, 0, 0)
    edited = _edited_count(earlier, later, before, after)
    head = _shared(before, after)
    best = _best_shift(before, after, _first_new(earlier, later, head))
    in_place = Alignment(len(before), 0, 0, 0)
    if best is None:
        return in_place if edited is not None else _replaced(earlier, later, before, after)
    if edited is not None and edited >= best.num_kept:
        return in_place
    return best


def _shared(before: Sequence[int], after: Sequence[int]) -> int:
    pairs = zip(before, after, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))


def _first_new(
    earlier: Sequence[dict[str, Any]], later: Sequence[dict[str, Any]], head: int
) -> int:
    """Return where dropping may begin: behind the system text, which is edited, not dropped."""
    return max(head, min(head_length(earlier), head_length(later)))


def _best_shift(before: Sequence[int], after: Sequence[int], start: int) -> Alignment | None:
    """Drop the fewest messages behind the head such that the rest goes on in the later list."""
    for dropped in range(len(before) - start):
        rest = before[start + dropped :]
        for put_in in range(_MOST_PUT_IN + 1):
            at = start + put_in
            if dropped == put_in == 0:
                continue
            if after[at : at + len(rest)] == rest and at + len(rest) < len(after):
                return Alignment(start, dropped, put_in, len(rest))
    return None


def _edited_count(
    earlier: Sequence[dict[str, Any]],
    later: Sequence[dict[str, Any]],
    before: Sequence[int],
    after: Sequence[int],
) -> int | None:
    """Return how many messages are unchanged if those that differ were edited; None if not so."""
    if len(later) < len(earlier):
        return None
    same = 0
    for index, message in enumerate(earlier):
        if before[index] == after[index]:
            same += not is_system(message)
        elif not _is_edit(message, later[index]) or not _is_answered(earlier, later, index):
            return None
    return same


def _is_edit(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Say whether one message may be the other, edited. Calls and results may change altogether."""
    return old.get("role") == new.get("role")


def _is_answered(
    earlier: Sequence[dict[str, Any]], later: Sequence[dict[str, Any]], index: int
) -> bool:
    """The last message, edited, has to be followed by its answer, or it is just another message."""
    if index < len(earlier) - 1 or is_system(earlier[index]):
        return True
    return index + 1 < len(later) and later[index + 1].get("role") == "assistant"


def _replaced(
    earlier: Sequence[dict[str, Any]],
    later: Sequence[dict[str, Any]],
    before: Sequence[int],
    after: Sequence[int],
) -> Alignment:
    """Nothing of the old history is left: all of it behind the head was dropped."""
    head = _first_new(earlier, later, _shared(before, after))
    put_in = max(0, len(later) - head - 1)
    return Alignment(head, len(earlier) - head, put_in, 0)
