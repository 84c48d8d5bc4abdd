"""A checked log as reports show it: the check's report, what was read, and figures from both."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from warmturn.check import CheckReport, ConversationCheck, Finding, Fix, TurnCheck
from warmturn.check.engines import Engine, lost_to
from warmturn.formats import BadLine
from warmturn.report.baseline import FailureKey, failure_key

__all__ = ["MOST_CONVERSATIONS", "CauseGroup", "CheckedLog", "Figures", "share_of"]

MOST_CONVERSATIONS = 40
"""Listed on a terminal, the worst."""

CHARS_PER_TOKEN = 4
"""For an estimate where there is no tokenizer; it is always called one."""


@dataclass(frozen=True)
class CheckedLog:
    """One run of the checker over files."""

    report: CheckReport
    files: tuple[str, ...]
    rendered_with: str
    """A sentence: which template and tokenizer, and what cannot be seen with them."""
    fail_under: float
    engine: Engine = "paged"
    block_tokens: int = 16
    prefill_tokens_per_s: float | None = None
    num_bad_lines: int = 0
    bad_lines: tuple[BadLine, ...] = ()
    """The first of them."""
    known: frozenset[FailureKey] = frozenset()
    """Failures that an earlier report has already: they are shown and do not fail."""

    @cached_property
    def figures(self) -> "Figures":
        """What one pass over the conversations tells."""
        return _counted(self)

    def failures(self) -> Iterator[tuple[ConversationCheck, TurnCheck]]:
        """Yield the turns that fail, known ones left out, in the order of the log's conversations."""
        for conversation in self.report.conversations:
            for turn in conversation.turns:
                if self.is_new_failure(conversation, turn):
                    yield conversation, turn

    def is_new_failure(self, conversation: ConversationCheck, turn: TurnCheck) -> bool:
        """Say whether the turn fails and the baseline does not know it."""
        return turn.is_failure and failure_key(conversation, turn) not in self.known

    @property
    def num_known(self) -> int:
        """Failures the baseline has."""
        return self.report.num_failures - self.figures.num_new_failures

    def lost_tokens(self, turn: TurnCheck) -> int:
        """Tokens the engine computes again; estimated where nothing was tokenised."""
        if turn.cost is None:
            return (turn.cached_chars - turn.shared_chars) // CHARS_PER_TOKEN
        return lost_to(turn.cost, self.engine, block_tokens=self.block_tokens)

    def lost_s(self, lost_tokens: int) -> float | None:
        """Prefill seconds of so many tokens; None without a measured rate."""
        rate = self.prefill_tokens_per_s
        return None if rate is None else lost_tokens / rate


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts over all turns, and the few conversations that are shown. Of any log equally large."""

    num_new_failures: int
    num_later_turns: int
    """Turns that continue another."""
    num_not_rendered: int
    """Requests the template refused, of which nothing can be said."""
    num_without_messages: int
    """Requests of which the log has the prompt's text or ids only."""
    refusal: str
    """Why the first of them was refused; '' without one."""
    lost_tokens: int
    has_tokens: bool
    """Whether lengths were counted in tokens, not estimated."""
    causes: tuple["CauseGroup", ...]
    """One group per first cause, the dearest first."""
    worst: tuple[ConversationCheck, ...]
    """The conversations that lose most, `MOST_CONVERSATIONS` at most."""


def _counted(log: CheckedLog) -> Figures:
    counts: Counter[str] = Counter()
    groups: dict[str, CauseGroup] = {}
    worst: list[tuple[int, int, ConversationCheck]] = []
    refusal = ""
    for conversation in log.report.conversations:
        lost = 0
        for turn in conversation.turns:
            lost_here = log.lost_tokens(turn)
            lost += lost_here
            counts["new"] += log.is_new_failure(conversation, turn)
            counts["later"] += turn.parent_id is not None
            counts["without"] += turn.are_messages_append_only is None
            counts["counted"] += turn.cost is not None
            if is_not_rendered(turn):
                counts["refused"] += 1
                refusal = refusal or turn.notes[0]
            if turn.cause != "none":
                one = CauseGroup(
                    turn.cause, 1, lost_here, lost_here, conversation.conversation_id, turn
                )
                found = groups.get(turn.cause)
                groups[turn.cause] = one if found is None else found.joined(one)
        counts["lost"] += lost
        worst = _with_worst(worst, (-lost, conversation.thread, conversation))
    return Figures(
        num_new_failures=counts["new"],
        num_later_turns=counts["later"],
        num_not_rendered=counts["refused"],
        num_without_messages=counts["without"],
        refusal=refusal,
        lost_tokens=counts["lost"],
        has_tokens=counts["counted"] > 0,
        causes=tuple(sorted(groups.values(), key=lambda group: -group.lost_tokens)),
        worst=tuple(conversation for _, _, conversation in sorted(worst)[:MOST_CONVERSATIONS]),
    )


def _with_worst(
    worst: list[tuple[int, int, ConversationCheck]], one: tuple[int, int, ConversationCheck]
) -> list[tuple[int, int, ConversationCheck]]:
    worst.append(one)
    return worst if len(worst) < 2 * MOST_CONVERSATIONS else sorted(worst)[:MOST_CONVERSATIONS]


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """All turns that break first for one cause, and the worst of them."""

    cause: str
    num_turns: int
    lost_tokens: int
    """Of all turns together."""
    worst_lost_tokens: int
    conversation_id: str
    worst: TurnCheck

    def joined(self, other: "CauseGroup") -> "CauseGroup":
        """Return both groups as one, with the worse turn of the two."""
        worse = other if other.worst_lost_tokens > self.worst_lost_tokens else self
        return CauseGroup(
            self.cause,
            self.num_turns + other.num_turns,
            self.lost_tokens + other.lost_tokens,
            worse.worst_lost_tokens,
            worse.conversation_id,
            worse.worst,
        )

    @property
    def findings(self) -> Iterator[Finding]:
        """The findings of the worst turn, the first one first."""
        return iter(self.worst.findings)

    def fixes(self, report: CheckReport) -> tuple[Fix, ...]:
        """Return the proven changes: those of the worst turn, else those of another turn."""
        own = tuple(fix for fix in self.worst.fixes if fix.cause == self.cause)
        return own or tuple(fix for fix in report.fixes if fix.cause == self.cause)


def share_of(turn: TurnCheck) -> float | None:
    """Return the share of what was cached that the turn reuses; None for the first of a thread."""
    if turn.parent_id is None:
        return None
    if turn.cost is not None:
        return turn.cost.cached_share
    return turn.shared_chars / turn.cached_chars if turn.cached_chars else None


def is_not_rendered(turn: TurnCheck) -> bool:
    """Say whether the template refused the turn's request."""
    return any(note.startswith("not rendered") for note in turn.notes)
