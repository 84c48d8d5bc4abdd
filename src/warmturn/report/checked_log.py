"""A checked log as reports show it: the check's report, what was read, and figures from both."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from warmturn.check import CheckReport, ConversationCheck, Finding, Fix, TurnCheck
from warmturn.check.engines import Engine, lost_to
from warmturn.formats import BadLine
from warmturn.report.baseline import FailureKey, failure_key

__all__ = ["CauseGroup", "CheckedLog", "share_of"]

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
    def failures(self) -> tuple[tuple[ConversationCheck, TurnCheck], ...]:
        """The turns that fail, known ones left out, in the order of the log's conversations."""
        return tuple(
            (conversation, turn)
            for conversation in self.report.conversations
            for turn in conversation.turns
            if turn.is_failure and failure_key(conversation, turn) not in self.known
        )

    @property
    def num_known(self) -> int:
        """Failures the baseline has."""
        return self.report.num_failures - len(self.failures)

    @property
    def num_not_rendered(self) -> int:
        """Requests the template refused, of which nothing can be said."""
        return sum(is_not_rendered(turn) for turn in self.report.turns())

    def lost_tokens(self, turn: TurnCheck) -> int:
        """Tokens the engine computes again; estimated where nothing was tokenised."""
        if turn.cost is None:
            return (turn.cached_chars - turn.shared_chars) // CHARS_PER_TOKEN
        return lost_to(turn.cost, self.engine, block_tokens=self.block_tokens)

    def lost_s(self, lost_tokens: int) -> float | None:
        """Prefill seconds of so many tokens; None without a measured rate."""
        rate = self.prefill_tokens_per_s
        return None if rate is None else lost_tokens / rate

    @cached_property
    def has_tokens(self) -> bool:
        """Whether lengths were counted in tokens, not estimated."""
        return any(turn.cost is not None for turn in self.report.turns())

    @cached_property
    def causes(self) -> tuple["CauseGroup", ...]:
        """One group per first cause, the dearest first."""
        groups: dict[str, CauseGroup] = {}
        for conversation in self.report.conversations:
            for turn in conversation.turns:
                if turn.cause != "none":
                    lost = self.lost_tokens(turn)
                    found = groups.get(turn.cause)
                    one = CauseGroup(turn.cause, 1, lost, lost, conversation, turn)
                    groups[turn.cause] = one if found is None else found.joined(one)
        return tuple(sorted(groups.values(), key=lambda group: -group.lost_tokens))


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """All turns that break first for one cause, and the worst of them."""

    cause: str
    num_turns: int
    lost_tokens: int
    """Of all turns together."""
    worst_lost_tokens: int
    conversation: ConversationCheck
    worst: TurnCheck

    def joined(self, other: "CauseGroup") -> "CauseGroup":
        """Return both groups as one, with the worse turn of the two."""
        worse = other if other.worst_lost_tokens > self.worst_lost_tokens else self
        return CauseGroup(
            self.cause,
            self.num_turns + other.num_turns,
            self.lost_tokens + other.lost_tokens,
            worse.worst_lost_tokens,
            worse.conversation,
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
