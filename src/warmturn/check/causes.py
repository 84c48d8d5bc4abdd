"""Finds why a pair breaks: undo one suspect, render again; what moves the break is the cause.

Suspects are tried in the order of the levels: what the client changed in the messages, the
reply it sent back, then the template. Where one holds, it stays undone, and the search goes on
with what is left, so that causes come in the order of their position. Nothing here looks for a
pattern to *decide*: patterns only name what an experiment has shown.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from warmturn.check.experiment import Pair, Trial, holds
from warmturn.check.names import UNKNOWN, Blame, Level, blame_of
from warmturn.check.suspect_echo import undo_echo
from warmturn.check.suspect_fields import undo_fields
from warmturn.check.suspect_history import undo_history
from warmturn.check.suspect_system import undo_system
from warmturn.check.suspect_template import TEMPLATE_SUSPECTS
from warmturn.check.suspect_tools import undo_kwargs, undo_tools
from warmturn.errors import WarmturnError

__all__ = ["Finding", "Step", "Suspect", "both_sides", "find_causes", "message_at"]

Suspect: TypeAlias = Callable[[Pair], Iterator[Trial]]

SUSPECTS: tuple[Suspect, ...] = (
    undo_tools,
    undo_kwargs,
    undo_system,
    undo_history,
    undo_fields,
    undo_echo,
    *TEMPLATE_SUSPECTS,
)

_MOST_CAUSES = 8
_BEFORE, _AFTER = 48, 48


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause of a break, with the place it broke at and both sides of it."""

    cause: str
    level: Level
    blame: Blame
    shared_chars: int
    """Characters shared with the earlier turn while this cause stood."""
    message_index: int | None
    """Index in the later message list; None for tools and where the place is not known."""
    detail: str
    earlier_at: str
    """The cached text around the break."""
    later_at: str
    """The new prompt around the break."""
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One cause, and the pair with it and all causes before it undone."""

    finding: Finding
    undone: Pair


def find_causes(pair: Pair) -> tuple[Step, ...]:
    """Return the causes of a break of rendered text, in order of position; () if there is none.

    It is `unknown` where nothing that can be undone explains the first break.
    """
    steps: list[Step] = []
    for _ in range(_MOST_CAUSES):
        if pair.is_append_only:
            break
        trial = _first_that_holds(pair)
        if trial is None:
            break
        if all(known.finding.cause != trial.cause for known in steps):
            steps.append(Step(_finding(pair, trial), trial.pair))
        pair = trial.pair
    if not steps and not pair.is_append_only:
        steps.append(Step(_unknown(pair), pair))
    return tuple(steps)


def message_at(pair: Pair, position: int) -> int | None:
    """Return the index of the later message that prints the character at `position`, by bisection."""
    low, high = 0, len(pair.later.messages)
    while low < high:
        middle = (low + high) // 2
        head = replace(pair.later, messages=pair.later.messages[: middle + 1])
        text = pair.text_of(head, add_generation_prompt=False)
        if text is None:
            return None
        if len(text) > position:
            high = middle
        else:
            low = middle + 1
    return low if low < len(pair.later.messages) else None


def _first_that_holds(pair: Pair) -> Trial | None:
    for suspect in SUSPECTS:
        trials = suspect(pair)
        while True:
            try:
                trial = next(trials, None)
            except WarmturnError:  # the template refuses this experiment: it proves nothing
                break
            if trial is None:
                break
            if holds(pair, trial):
                return trial
    return None


def _finding(pair: Pair, trial: Trial) -> Finding:
    index = trial.message_index
    if index is None and trial.level == "text" and not trial.facts:
        index = message_at(pair, pair.shared)
    return Finding(
        trial.cause,
        trial.level,
        blame_of(trial.cause),
        pair.shared,
        index,
        trial.detail,
        *both_sides(pair),
        trial.facts,
    )


def _unknown(pair: Pair) -> Finding:
    detail = "no change that can be undone moves the break"
    place = pair.shared, message_at(pair, pair.shared)
    return Finding(UNKNOWN, "text", "nobody", *place, detail, *both_sides(pair), {})


def both_sides(pair: Pair) -> tuple[str, str]:
    """Return the cached and the new text around the break."""
    start, end = max(0, pair.shared - _BEFORE), pair.shared + _AFTER
    return pair.cached_text[start:end], pair.later_text[start:end]
