"""What the checker says: frozen values that become JSON as they are."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from warmturn.check.causes import Finding
from warmturn.check.lineage import Relation
from warmturn.check.names import Blame, Level, Verdict
from warmturn.check.reply import Evidence
from warmturn.check.tokens import TokenFinding
from warmturn.cost.reuse import TurnCost

__all__ = ["CheckReport", "ConversationCheck", "Conversations", "Fix", "TurnCheck", "WindowStep"]


@dataclass(frozen=True, slots=True)
class WindowStep:
    """The smallest truncation step that leaves enough turns pure appends."""

    window_messages: int
    step_messages: int
    """Let the history grow by so many beyond the window, then cut it back at once."""
    append_share: float
    """Share of turns that are pure appends in the proof, of `num_turns` rendered turns."""
    num_turns: int
    append_share_now: float


@dataclass(frozen=True, slots=True)
class Fix:
    """One concrete change, rendered. Shares are of `P(n) + G(n)` in characters."""

    cause: str
    change: str
    share_before: float
    share_after: float
    is_proven: bool
    """Whether the rendering with the change shares all, or all but what other causes take."""
    extra_context_tokens: int | None = None
    """What the change adds to the prompt of the next turn; characters / 4 without a tokenizer."""
    full_context_turn: int | None = None
    """The turn at which the grown conversation meets the model's limit; None if unknown."""
    window: WindowStep | None = None


@dataclass(frozen=True, slots=True)
class TurnCheck:
    """One request against the one it continues (`parent_id`)."""

    request_id: str
    parent_id: str | None
    number: int
    """Place in the log, from 1."""
    parent_number: int | None
    source: str
    line: int
    turn: int
    """0 for the first request of a thread."""
    relation: Relation
    verdict: Verdict
    level: Level | None
    """The first level that explains the break; None without one."""
    cause: str
    """The first cause; `none` without a break."""
    blame: Blame
    findings: tuple[Finding, ...] = ()
    token_finding: TokenFinding | None = None
    evidence: Evidence = "none"
    """What was known of the earlier reply; only `ids` prove what lay in the cache."""
    earlier_prompt_chars: int = 0
    cached_chars: int = 0
    prompt_chars: int = 0
    shared_chars: int = 0
    are_messages_append_only: bool | None = True
    """None where the log has no messages."""
    is_loss_bounded: bool | None = None
    """Whether not more than the last user round is lost; told where the template is to blame."""
    latent: tuple[str, ...] = ()
    """Causes that will break a later turn though this one is clean."""
    across: tuple[str, ...] = ()
    """Of a thread's first turn: what keeps it from sharing another conversation's system text."""
    notes: tuple[str, ...] = ()
    cost: TurnCost | None = None
    fixes: tuple[Fix, ...] = ()
    is_planned: bool = False
    """A history cut or summarised in steps far enough apart: a loss, but no fault."""
    is_failure: bool = False
    """Whether a share is under the threshold, and the loss neither planned nor the first turn's."""

    @property
    def causes(self) -> tuple[str, ...]:
        """All causes, in order of position."""
        found = tuple(finding.cause for finding in self.findings)
        return found if self.token_finding is None else (*found, self.token_finding.cause)


@dataclass(frozen=True, slots=True)
class ConversationCheck:
    """One thread: a root and all that continues it."""

    conversation_id: str
    thread: int
    verdict: Verdict
    cause: str
    blame: Blame
    turns: tuple[TurnCheck, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the conversation as JSON data."""
        data: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return data


class Conversations(Protocol):
    """Conversations in the order of the log, as often as they are asked for; a tuple is one."""

    def __iter__(self) -> Iterator[ConversationCheck]:
        """Yield each of them."""

    def __len__(self) -> int:
        """Return how many there are."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The whole log."""

    verdict: Verdict
    level: Level | None
    cause: str
    """That of the first break; `lineage.side_request_or_fork` for several threads without one."""
    blame: Blame
    conversations: Conversations
    fixes: tuple[Fix, ...]
    """One per cause: the change of its first turn, with shares averaged over its turns."""
    num_requests: int
    num_breaks: int
    num_failures: int
    shared_tokens: int
    """Summed over turns with a parent; 0 without a tokenizer."""
    cached_tokens: int
    lost_ttft_s: float | None

    def turns(self) -> Iterator[TurnCheck]:
        """Yield the turns of all threads."""
        for conversation in self.conversations:
            yield from conversation.turns

    @property
    def is_clean(self) -> bool:
        """Whether no turn failed: exit code 0."""
        return self.num_failures == 0

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        data = self.totals()
        data["conversations"] = [conversation.as_dict() for conversation in self.conversations]
        return data

    def totals(self) -> dict[str, Any]:
        """Return all but the conversations as JSON data."""
        data: dict[str, Any] = msgspec.to_builtins(replace(self, conversations=()), str_keys=True)
        return data
