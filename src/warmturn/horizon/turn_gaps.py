"""A bracket for the horizon from logged turns: the longest gap that hit, the shortest that aged out.

A miss at a gap at which hits are proven cannot be age: the prompt was changed, the cache flushed,
or another replica asked. Such misses are set aside and counted, not averaged in.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["GapBracket", "LoggedGap", "TurnClass", "bracket_horizon"]

TurnClass: TypeAlias = Literal["age", "contradiction", "model_change", "first_turn", "hit"]
CLASSES: tuple[TurnClass, ...] = ("age", "contradiction", "model_change", "first_turn", "hit")


@dataclass(frozen=True, slots=True)
class LoggedGap:
    """One turn: how long after the one before, and what it found."""

    gap_s: float
    cached_tokens: int
    computed_tokens: int
    is_first: bool = False
    is_model_changed: bool = False

    @property
    def is_hit(self) -> bool:
        """More was found than computed: a shared system prompt alone is no hit."""
        return self.cached_tokens > self.computed_tokens


@dataclass(frozen=True, slots=True)
class GapBracket:
    """The horizon lies above `lower_s` and not above `upper_s`."""

    lower_s: float
    """The longest gap that hit; 0 without a hit."""
    upper_s: float
    """The shortest gap that missed for its age; infinite without one."""
    classes: tuple[TurnClass, ...]
    """Of each turn, in order."""

    def count(self, name: TurnClass) -> int:
        """Return how many turns are of that class."""
        return self.classes.count(name)


def bracket_horizon(turns: Sequence[LoggedGap]) -> GapBracket:
    """Return the bracket. Turns without a fair chance to hit (first ones, another model) are out."""
    lower = max((t.gap_s for t in turns if _can_tell(t) and t.is_hit), default=0.0)
    classes = tuple(_class_of(turn, lower) for turn in turns)
    aged = [t.gap_s for t, name in zip(turns, classes, strict=True) if name == "age"]
    return GapBracket(lower, min(aged, default=math.inf), classes)


def _can_tell(turn: LoggedGap) -> bool:
    return not turn.is_first and not turn.is_model_changed


def _class_of(turn: LoggedGap, lower_s: float) -> TurnClass:
    if turn.is_first:
        return "first_turn"
    if turn.is_model_changed:
        return "model_change"
    if turn.is_hit:
        return "hit"
    return "age" if turn.gap_s > lower_s else "contradiction"
