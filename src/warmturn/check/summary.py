"""From turns to a report: what only the whole of a conversation tells.

A cut of the history is planned where it comes seldom. A request that repeats a conversation
with other tools or orders, while the conversation goes on without it, is a side request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from warmturn.check.names import Level, Verdict, blame_of
from warmturn.check.report import CheckReport, ConversationCheck, Fix, TurnCheck
from warmturn.check.settings import Settings

__all__ = ["CUTS", "SWITCH_REBUILT", "Thread", "judged", "summarise"]

CUTS = frozenset({"client.history_window_slide", "client.history_summarised"})
SWITCH_REBUILT = "client.model_switch_plus_rebuilt_system"

_SIDE = "lineage.side_request_or_fork"
_PLANNED_SHARE = 0.2
"""A history cut in at most every fifth turn is a plan, not a window that slides."""

_OTHER_REQUEST = frozenset({
    "client.tools_changed", "client.message_edited", "client.template_kwargs_changed",
})  # fmt: skip
"""What a side request does to the top of a prompt."""


@dataclass(slots=True)
class Thread:
    """A conversation while the log is read."""

    number: int
    conversation_id: str
    turns: list[TurnCheck] = field(default_factory=list)


def summarise(threads: Sequence[Thread], settings: Settings) -> CheckReport:
    """Return the report on all threads."""
    conversations = tuple(_conversation(thread, settings) for thread in threads)
    turns = sorted((t for c in conversations for t in c.turns), key=lambda turn: turn.number)
    costs = [turn.cost for turn in turns if turn.cost is not None]
    times = [cost.lost_ttft_s for cost in costs if cost.lost_ttft_s is not None]
    verdict, level, cause = _of_log(turns, is_split=len(conversations) > 1)
    return CheckReport(
        verdict=verdict,
        level=level,
        cause=cause,
        blame=blame_of(cause),
        conversations=conversations,
        fixes=_summed_fixes(turns),
        num_requests=len(turns),
        num_breaks=sum(_counts_as_break(turn) for turn in turns),
        num_failures=sum(turn.is_failure for turn in turns),
        shared_tokens=sum(cost.shared_tokens for cost in costs),
        cached_tokens=sum(cost.shared_tokens + cost.lost_tokens for cost in costs),
        lost_ttft_s=sum(times) if times else None,
    )


def _of_log(turns: Sequence[TurnCheck], *, is_split: bool) -> tuple[Verdict, Level | None, str]:
    first = next((turn for turn in turns if _counts_as_break(turn)), None)
    if first is not None:
        return "break", first.level, first.cause
    across = next((cause for turn in turns for cause in turn.across), None)
    if across is not None and all(turn.parent_id is None for turn in turns):
        # No turn follows another: the system text is all there is to share, and it is lost.
        return "break", "messages", across
    is_split = is_split or any(t.relation in {"fork", "retry", "side"} for t in turns)
    return "append-only", None, _SIDE if is_split else "none"


def _conversation(thread: Thread, settings: Settings) -> ConversationCheck:
    turns = _without_sides(thread.turns)
    followed = [turn for turn in turns if turn.parent_id is not None]
    cuts = sum(turn.cause in CUTS for turn in followed)
    is_planned = 0 < cuts <= _PLANNED_SHARE * len(followed)
    turns = [judged(turn, is_planned=is_planned, settings=settings) for turn in turns]
    first = next((turn for turn in turns if _counts_as_break(turn)), None)
    cause = "none" if first is None else first.cause
    return ConversationCheck(
        thread.conversation_id,
        thread.number,
        "append-only" if first is None else "break",
        cause,
        blame_of(cause),
        tuple(turns),
    )


def _without_sides(turns: Sequence[TurnCheck]) -> list[TurnCheck]:
    """Clear the requests that only repeat a conversation which goes on, unbroken, without them."""
    with_child = {turn.parent_number for turn in turns}
    goes_on = {t.parent_number for t in turns if t.verdict == "append-only"} - {None}
    return [
        _as_side(turn)
        if turn.cause in _OTHER_REQUEST
        and turn.level == "messages"
        and turn.parent_number in goes_on
        and turn.number not in with_child
        else turn
        for turn in turns
    ]


def _as_side(turn: TurnCheck) -> TurnCheck:
    return replace(
        turn,
        relation="side",
        parent_id=None,
        parent_number=None,
        verdict="append-only",
        level=None,
        cause="none",
        blame="nobody",
        findings=(),
        fixes=(),
        cost=None,
        notes=(*turn.notes, f"repeats {turn.parent_id} with other tools or orders"),
    )


def _counts_as_break(turn: TurnCheck) -> bool:
    return turn.verdict == "break" or turn.cause == SWITCH_REBUILT


def judged(turn: TurnCheck, *, is_planned: bool, settings: Settings) -> TurnCheck:
    """Return the turn with its loss weighed: planned, a failure, or under the threshold."""
    planned = is_planned and turn.cause in CUTS
    if turn.cost is not None:
        shares = turn.cost.prompt_share, turn.cost.cached_share
    else:
        prompt = min(turn.shared_chars, turn.earlier_prompt_chars)
        shares = (
            prompt / max(1, turn.earlier_prompt_chars),
            turn.shared_chars / max(1, turn.cached_chars),
        )
    is_low = min(shares) < settings.fail_under
    is_failure = turn.cause == SWITCH_REBUILT or (
        turn.verdict == "break" and is_low and not planned
    )
    return replace(turn, is_planned=planned, is_failure=is_failure)


def _summed_fixes(turns: Sequence[TurnCheck]) -> tuple[Fix, ...]:
    """Return one fix per cause: its first change, with the shares of all turns averaged."""
    by_change: dict[tuple[str, int], list[Fix]] = {}
    for turn in turns:
        ranks: dict[str, int] = {}
        for fix in turn.fixes:
            rank = ranks.get(fix.cause, 0)
            ranks[fix.cause] = rank + 1
            by_change.setdefault((fix.cause, rank), []).append(fix)
    return tuple(
        replace(
            fixes[0],
            share_before=sum(fix.share_before for fix in fixes) / len(fixes),
            share_after=sum(fix.share_after for fix in fixes) / len(fixes),
            is_proven=all(fix.is_proven for fix in fixes),
        )
        for fixes in by_change.values()
    )
