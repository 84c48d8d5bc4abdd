"""From turns to a report: what only the whole of a conversation tells, and only the whole log.

A cut of the history is planned where it comes seldom. A request that repeats a conversation
with other tools or orders, while the conversation goes on without it, is a side request.

Threads end one by one, and a log may be read by several checkers, each with conversations of its
own. What depends on the order of the whole log (numbers of threads, proofs given up after enough
of them, system texts that nearly agree) is settled when the ended threads are put in order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from warmturn.check.names import Level, Verdict, blame_of
from warmturn.check.orders import SharedOrders
from warmturn.check.report import (
    CheckReport,
    ConversationCheck,
    Conversations,
    Fix,
    TurnCheck,
)
from warmturn.check.settings import Settings

__all__ = [
    "CUTS",
    "SWITCH_REBUILT",
    "EndedThread",
    "Proofs",
    "Thread",
    "ThreadOrder",
    "Totals",
    "ended",
    "judged",
    "last_proofs",
]

CUTS = frozenset({"client.history_window_slide", "client.history_summarised"})
SWITCH_REBUILT = "client.model_switch_plus_rebuilt_system"

_SIDE = "lineage.side_request_or_fork"
_PLANNED_SHARE = 0.2
"""A history cut in at most every fifth turn is a plan, not a window that slides."""

_OTHER_REQUEST = frozenset({
    "client.tools_changed", "client.message_edited", "client.template_kwargs_changed",
})  # fmt: skip
"""What a side request does to the top of a prompt."""

_MOST_PROOFS_PER_CAUSE = 20
"""Each proof is two renders; a log of one cause throughout has no need of more."""


@dataclass(slots=True)
class Thread:
    """A conversation while the log is read."""

    conversation_id: str | None
    """As in the log, with a number where it has several threads; None where it has none."""
    orders: tuple[object, str] | None
    """Scope and system text of the first request; None where it was not rendered."""
    turns: list[TurnCheck] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class EndedThread:
    """A conversation that nothing continues any more; its number in the log is still open."""

    conversation: ConversationCheck
    is_named: bool
    orders: tuple[object, str] | None

    @property
    def number(self) -> int:
        """Number of its first request in the log."""
        return self.conversation.turns[0].number


def ended(thread: Thread, settings: Settings) -> EndedThread:
    """Return the thread with its turns judged."""
    turns = _without_sides(thread.turns)
    followed = [turn for turn in turns if turn.parent_id is not None]
    cuts = sum(turn.cause in CUTS for turn in followed)
    is_planned = 0 < cuts <= _PLANNED_SHARE * len(followed)
    turns = [judged(turn, is_planned=is_planned, settings=settings) for turn in turns]
    first = next((turn for turn in turns if _counts_as_break(turn)), None)
    cause = "none" if first is None else first.cause
    verdict: Verdict = "append-only" if first is None else "break"
    name = thread.conversation_id or ""
    conversation = ConversationCheck(name, -1, verdict, cause, blame_of(cause), tuple(turns))
    return EndedThread(conversation, thread.conversation_id is not None, thread.orders)


class Proofs:
    """Counts for which turns fixes were proven: of each cause only the first."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}
        """Cause → numbers of the requests it was proven for, in the order of the log."""

    def are_due(self, cause: str, number: int) -> bool:
        """Say whether another proof is wanted, and count it."""
        numbers = self.numbers.setdefault(cause, [])
        if len(numbers) >= _most_proofs(cause):
            return False
        numbers.append(number)
        return True


def last_proofs(parts: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, int]:
    """Return, for each cause, the last request that one reader of the whole log had proven."""
    numbers: dict[str, list[int]] = {}
    for part in parts:
        for cause, found in part.items():
            numbers.setdefault(cause, []).extend(found)
    return {cause: sorted(found)[: _most_proofs(cause)][-1] for cause, found in numbers.items()}


def _most_proofs(cause: str) -> int:
    # The step of a window is that of its whole conversation: one proof will do.
    return 1 if cause in CUTS else _MOST_PROOFS_PER_CAUSE


class ThreadOrder:
    """Numbers the threads of a log. They come in the order of their first requests."""

    def __init__(self, last_proof_of: Mapping[str, int]) -> None:
        self._last_proof_of = last_proof_of
        self._num_threads = 0
        self._orders: dict[object, SharedOrders] = {}

    def place(self, thread: EndedThread) -> ConversationCheck:
        """Return the conversation with what its place in the log decides."""
        number = self._num_threads
        self._num_threads += 1
        found = thread.conversation
        first, *others = map(self._proven, found.turns)
        if thread.orders is not None:
            scope, text = thread.orders
            shared = self._orders.setdefault(scope, SharedOrders())
            first = replace(first, across=shared.add(text))
        return replace(
            found,
            conversation_id=found.conversation_id if thread.is_named else f"thread-{number + 1}",
            thread=number,
            turns=(first, *others),
        )

    def _proven(self, turn: TurnCheck) -> TurnCheck:
        last = self._last_proof_of
        fixes = tuple(fix for fix in turn.fixes if turn.number <= last[fix.cause])
        return turn if len(fixes) == len(turn.fixes) else replace(turn, fixes=fixes)


class Totals:
    """Sums up conversations that come one by one, in order; keeps none of them."""

    def __init__(self) -> None:
        self._num_requests = self._num_breaks = self._num_failures = 0
        self._shared_tokens = self._cached_tokens = 0
        self._lost_ttft_s: float | None = None
        self._num_conversations = 0
        self._first: TurnCheck | None = None
        self._across: str | None = None
        self._is_split = self._has_later_turn = False
        self._fixed: list[tuple[int, tuple[Fix, ...]]] = []

    def add(self, conversation: ConversationCheck) -> None:
        """Count one more."""
        self._num_conversations += 1
        for turn in conversation.turns:
            self._count(turn)

    def report(self, conversations: Conversations) -> CheckReport:
        """Return the report on what was added; `conversations` gives it again."""
        verdict, level, cause = self._of_log()
        return CheckReport(
            verdict=verdict,
            level=level,
            cause=cause,
            blame=blame_of(cause),
            conversations=conversations,
            fixes=_summed_fixes([fixes for _, fixes in sorted(self._fixed, key=lambda f: f[0])]),
            num_requests=self._num_requests,
            num_breaks=self._num_breaks,
            num_failures=self._num_failures,
            shared_tokens=self._shared_tokens,
            cached_tokens=self._cached_tokens,
            lost_ttft_s=self._lost_ttft_s,
        )

    def _count(self, turn: TurnCheck) -> None:
        self._num_requests += 1
        self._num_failures += turn.is_failure
        self._has_later_turn |= turn.parent_id is not None
        self._is_split |= turn.relation in {"fork", "retry", "side"}
        self._across = self._across or next(iter(turn.across), None)
        if turn.fixes:
            self._fixed.append((turn.number, turn.fixes))
        if turn.cost is not None:
            self._shared_tokens += turn.cost.shared_tokens
            self._cached_tokens += turn.cost.shared_tokens + turn.cost.lost_tokens
            if turn.cost.lost_ttft_s is not None:
                self._lost_ttft_s = (self._lost_ttft_s or 0.0) + turn.cost.lost_ttft_s
        if _counts_as_break(turn):
            self._num_breaks += 1
            if self._first is None or turn.number < self._first.number:
                self._first = turn

    def _of_log(self) -> tuple[Verdict, Level | None, str]:
        if self._first is not None:
            return "break", self._first.level, self._first.cause
        if self._across is not None and not self._has_later_turn:
            # No turn follows another: the system text is all there is to share, and it is lost.
            return "break", "messages", self._across
        is_split = self._is_split or self._num_conversations > 1
        return "append-only", None, _SIDE if is_split else "none"


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
    if not planned and not is_failure:
        return turn
    return replace(turn, is_planned=planned, is_failure=is_failure)


def _summed_fixes(fixes_of_turns: Sequence[Sequence[Fix]]) -> tuple[Fix, ...]:
    """Return one fix per cause: its first change, with the shares of all turns averaged."""
    by_change: dict[tuple[str, int], list[Fix]] = {}
    for found in fixes_of_turns:
        ranks: dict[str, int] = {}
        for fix in found:
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
