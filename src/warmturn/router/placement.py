"""One request's place: what was decided, from which views, and what it still occupies there."""

from collections.abc import Sequence
from typing import Protocol

from warmturn.errors import BrokenInvariant
from warmturn.fleet import SourceId
from warmturn.router.account import Snapshot, SourceAccount
from warmturn.router.decision import Decision, Policy
from warmturn.router.replay import DecisionRecord
from warmturn.router.views import Candidate, PrefixHit, RoutingRequest
from warmturn.types import ReplicaId

__all__ = ["Belief", "Placement"]

NO_HIT = PrefixHit()


class Belief(Protocol):
    """What sources hold of one prompt: from events, or from what was routed where."""

    def of(self, source: SourceId) -> tuple[PrefixHit, float] | None:
        """Return what `source` holds, and how far to trust it by its origin alone, 0-1.

        None where nothing is known of it: then a session's last place holds its turn before.
        """
        ...


class Placement:
    """Made by `Dispatcher.place`, and the receipt for what is to be given back.

    `source`, `reason` and `predicted_tokens` are there at once. Where they were plain to see
    without asking the policy, candidates and decision are made when first read, from what stood in
    the books at that moment: they equal what the policy would have said then.
    """

    __slots__ = (
        "_candidates", "_decision", "_policy", "_shadow", "_shadow_decision", "account",
        "ahead_tokens", "belief", "believed_tokens", "held_tokens", "is_first_turn", "is_open",
        "last_source", "num_ahead", "number", "placed_s", "predicted_tokens", "prompt_tokens",
        "queued_tokens", "reason", "sent_s", "session", "snapshots", "source", "survival",
        "tokens_by_place", "tried", "turns_left",
    )  # fmt: skip

    def __init__(
        self,
        policy: Policy,
        shadow: Policy | None,
        *,
        session: str,
        prompt_tokens: int,
        number: int,
        last_source: SourceId | None,
        held_tokens: int,
        is_first_turn: bool,
        turns_left: float,
        belief: Belief | None,
        survival: float,
        tried: Sequence[SourceId],
        snapshots: list[Snapshot],
        tokens_by_place: dict[tuple[ReplicaId, int], int],
        placed_s: float,
    ) -> None:
        """What is given here is what stood in the books; nothing of it changes any more."""
        self._policy, self._shadow = policy, shadow
        self.session, self.prompt_tokens, self.number = session, prompt_tokens, number
        self.last_source, self.held_tokens = last_source, held_tokens
        self.is_first_turn, self.turns_left = is_first_turn, turns_left
        self.belief, self.survival, self.tried = belief, survival, tried
        self.snapshots, self.tokens_by_place = snapshots, tokens_by_place
        self.placed_s = placed_s
        self._candidates: tuple[Candidate, ...] | None = None
        self._decision: Decision | None = None
        self._shadow_decision: Decision | None = None
        self.source: SourceId | None = None
        """None: nobody could take it."""
        self.reason = "nobody"
        """As in `Decision.reason`."""
        self.predicted_tokens = 0
        self.believed_tokens = 0
        """Like the prediction, before the source's delivered share: what that share is of."""
        self.account: SourceAccount | None = None
        """Where it counts, though the source may have left the fleet since."""
        self.is_open = False
        """It counts as running there."""
        self.sent_s: float | None = None
        self.queued_tokens = 0
        """What it still adds to the queue there."""
        self.ahead_tokens = 0
        """Tokens to prefill before its first one, its own included, when it was placed."""
        self.num_ahead = 0

    @property
    def policy(self) -> str:
        """Name of the policy that decided."""
        return self._policy.name

    @property
    def request(self) -> RoutingRequest:
        """What was asked."""
        return RoutingRequest(
            self.session,
            self.prompt_tokens,
            number=self.number,
            last_source=self.last_source,
            is_first_turn=self.is_first_turn,
            turns_left=self.turns_left,
        )

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The views it was decided from."""
        if self._candidates is None:
            self._candidates = tuple(map(self._candidate, self.snapshots))
        return self._candidates

    @property
    def decision(self) -> Decision:
        """The decision with every candidate's price and reasons."""
        if self._decision is None:
            self._decision = self._policy.choose(self.request, self.candidates, self.placed_s)
        return self._decision

    @property
    def shadow(self) -> Decision | None:
        """What the shadow policy would have done with the same views; None where there is none."""
        if self._shadow is not None and self._shadow_decision is None:
            self._shadow_decision = self._shadow.choose(
                self.request, self.candidates, self.placed_s
            )
        return self._shadow_decision

    def believed(self, source: SourceId) -> tuple[PrefixHit, float]:
        """Return what `source` holds of the prompt, and the credit of what told it."""
        told = None if self.belief is None else self.belief.of(source)
        if told is not None:
            return told
        return (self.held_at_last() if source == self.last_source else NO_HIT), 1.0

    def held_at_last(self) -> PrefixHit:
        """Return what the session's last place holds where nobody knows better: its turn before."""
        tokens = max(0, min(self.held_tokens, self.prompt_tokens - 1))
        return PrefixHit(tokens, tokens, tokens)

    def record(self, *, at_s: float) -> DecisionRecord:
        """Return the line of a decision log; `at_s` is Unix time."""
        return DecisionRecord(at_s, self.request, self.candidates, self.decision)

    def check(self) -> None:
        """Raise `BrokenInvariant` where the decision is not the one that was acted on."""
        decision = self.decision
        acted = self.source, self.reason, self.predicted_tokens
        if acted != (decision.source, decision.reason, decision.predicted_tokens):
            raise BrokenInvariant(f"acted on {acted}, but {self.policy} says {decision}")

    def _candidate(self, snapshot: Snapshot) -> Candidate:
        source = snapshot.source
        is_here = source == self.last_source
        hit, credit = self.believed(source)
        takes = snapshot.takes(self.session, is_here=is_here, now=self.placed_s)
        return snapshot.candidate(
            is_alive=takes and source not in self.tried,
            session_tokens=self.tokens_by_place.get((source.replica, source.rank), 0),
            hit=hit,
            credit=credit,
            survival=self.survival if is_here else 1.0,
            now=self.placed_s,
        )
