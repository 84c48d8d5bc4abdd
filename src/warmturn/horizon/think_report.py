"""Think time of a log: by turn and by stop reason, who returns, and what a horizon does to them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from warmturn.errors import InvalidInput
from warmturn.horizon.exposure import Exposure, exposure
from warmturn.horizon.turn_gaps import GapBracket, LoggedGap, bracket_horizon
from warmturn.session.returning import return_class
from warmturn.session.think_time import ReturnCurve, return_curve
from warmturn.session.turn_history import Gap

__all__ = ["ThinkGroup", "ThinkReport", "observed_bracket", "think_report"]

_BUCKETS = ("1", "2", "3-4", "5-8", "9+")


@dataclass(frozen=True, slots=True)
class ThinkGroup:
    """Some gaps and their curve."""

    name: str
    curve: ReturnCurve
    exposed: Exposure | None
    """Against the horizon; None where none was given."""


@dataclass(frozen=True, slots=True)
class ThinkReport:
    """One log."""

    overall: ThinkGroup
    by_turn: tuple[ThinkGroup, ...]
    """By how many turns the conversation had before the gap."""
    by_stop: tuple[ThinkGroup, ...]
    num_sessions: int
    tokens_per_turn: float | None
    """Median of what a later turn finds or recomputes; None where the log counts no tokens."""
    num_from_starts: int
    """Gaps measured from the start of an answer, because the log has no end."""
    bracket: GapBracket | None
    """What the log's own hits and misses say of the horizon; None without cached tokens."""


def think_report(
    found: Sequence[Gap],
    *,
    horizon_s: float | None = None,
    prefill_tokens_per_s: float | None = None,
) -> ThinkReport:
    """Return the report. Raises `InvalidInput` where no conversation has a second turn."""
    if not any(not gap.is_open for gap in found):
        raise InvalidInput(
            f"{len(found)} answers, and no conversation with a second turn: the log holds single "
            "requests, or nothing that tells which belong together (a session id)"
        )
    per_turn = _tokens_per_turn(found)

    def group(name: str, of: Iterable[Gap]) -> ThinkGroup:
        curve = _curve(list(of))
        exposed = None
        if horizon_s is not None:
            exposed = exposure(
                curve,
                horizon_s=horizon_s,
                tokens_per_miss=per_turn or 0.0,
                prefill_tokens_per_s=prefill_tokens_per_s,
            )
        return ThinkGroup(name, curve, exposed)

    def groups(names: Sequence[str], key: Callable[[Gap], str]) -> tuple[ThinkGroup, ...]:
        split: dict[str, list[Gap]] = {name: [] for name in names}
        for gap in found:
            split[key(gap)].append(gap)
        return tuple(group(name, of) for name, of in split.items() if of)

    return ThinkReport(
        overall=group("all", found),
        by_turn=groups(
            _BUCKETS, lambda gap: _BUCKETS[return_class("other", gap.num_turns).turn_bucket]
        ),
        by_stop=groups(("end_turn", "tool_use", "other"), lambda gap: gap.before.stop),
        num_sessions=len({gap.session for gap in found}),
        tokens_per_turn=per_turn,
        num_from_starts=sum(gap.basis == "request-start" for gap in found),
        bracket=observed_bracket(found),
    )


def observed_bracket(found: Sequence[Gap]) -> GapBracket | None:
    """Return the horizon's bracket from hits and misses in the log; None where it has none.

    What the conversation's first turn found (a shared system prompt) is found by everybody and
    proves nothing: a turn hits where it finds more than half of what its own earlier turns left.
    """
    shared = {gap.session: gap.before.cached_tokens or 0 for gap in found if gap.num_turns == 1}
    turns = [
        logged
        for gap in found
        if (logged := _logged_gap(gap, shared.get(gap.session, 0))) is not None
    ]
    return bracket_horizon(turns) if turns else None


def _logged_gap(gap: Gap, shared_tokens: int) -> LoggedGap | None:
    before, after = gap.before, gap.after
    if after is None or after.cached_tokens is None or before.prompt_tokens is None:
        return None
    held = before.prompt_tokens + max(0, (before.completion_tokens or 0) - 1)
    return LoggedGap(
        gap.seconds,
        max(0, after.cached_tokens - shared_tokens),
        max(0, held - after.cached_tokens),
        is_model_changed=after.model != before.model,
    )


def _curve(found: Sequence[Gap]) -> ReturnCurve:
    return return_curve(
        [gap.seconds for gap in found if not gap.is_open],
        [gap.seconds for gap in found if gap.is_open],
    )


def _tokens_per_turn(found: Sequence[Gap]) -> float | None:
    """Return the median length of what lies in the cache when a turn comes."""
    lengths = [
        gap.before.prompt_tokens + (gap.before.completion_tokens or 0)
        for gap in found
        if gap.after is not None and gap.before.prompt_tokens is not None
    ]
    return float(median(lengths)) if lengths else None
