"""Decisions as records, and what other policies would have done with the same views.

A record holds everything a decision was made from, so feeding it again must give it again. Another
policy is judged on the views as they were: had it been in charge, loads and caches would have
become different ones. Short-term that is fair, over a whole day it takes the simulator.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from warmturn.fleet import SourceId
from warmturn.router.decision import Decision, Policy
from warmturn.router.policies import policy_named
from warmturn.router.views import Candidate, RoutingRequest

__all__ = ["DecisionRecord", "DecisionSummary", "Replay", "Replayer", "replay", "summary_of"]

MAX_DIFFERING = 100
"""Of records that came out differently, so many are named."""


@dataclass(frozen=True, slots=True)
class DecisionSummary:
    """A decision in short: equal exactly if all prices, terms and reasons are."""

    policy: str
    source: SourceId | None
    reason: str
    predicted_tokens: int
    digest: str
    """16 hexadecimal digits over the whole decision."""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision with everything it was made from."""

    at_s: float
    """Unix time by the gateway's clock: the `now` of the policy."""
    request: RoutingRequest
    candidates: tuple[Candidate, ...]
    decision: Decision | DecisionSummary


@dataclass(frozen=True, slots=True)
class Replay:
    """What a policy did with a log."""

    policy: str
    num_decisions: int
    num_equal: int
    """Sent where the log says."""
    num_later_turns: int
    num_kept: int
    """Later turns sent where their turn before had been, as logged."""
    new_tokens: int
    """Prompt tokens less the expected hits at the chosen ones."""
    requests_of: dict[str, int]
    """Requests per source."""
    num_differing: int
    """Records whose whole decision, prices and reasons included, came out differently."""
    differing: tuple[int, ...]
    """Indices of the first of them."""

    @property
    def reproduces(self) -> bool:
        """Say whether every decision came out as logged."""
        return self.num_differing == 0


class Replayer:
    """Takes records one by one; its memory does not grow with the log.

    Without `policy` each record is given to the policy that it names, with that one's defaults.
    """

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy
        self._by_name: dict[str, Policy] = {}
        self._num = self._num_equal = self._num_later = self._num_kept = self._new_tokens = 0
        self._requests_of: dict[str, int] = {}
        self._num_differing = 0
        self._differing: list[int] = []

    def add(self, record: DecisionRecord) -> None:
        """Ask the policy again. Raises `InvalidInput` where a record names an unknown one."""
        asked, logged = record.request, record.decision
        policy = self._policy or self._named(logged.policy)
        made = policy.choose(asked, record.candidates, record.at_s)
        self._num_equal += made.source == logged.source
        self._new_tokens += asked.prompt_tokens - made.predicted_tokens
        if asked.last_source is not None:
            self._num_later += 1
            self._num_kept += made.source == asked.last_source
        for view in record.candidates:
            if view.is_alive:  # one that gets nothing counts for the balance, too
                name = str(view.source)
                took = view.source == made.source
                self._requests_of[name] = self._requests_of.get(name, 0) + took
        if summary_of(made) != summary_of(logged):
            self._num_differing += 1
            if len(self._differing) < MAX_DIFFERING:
                self._differing.append(self._num)
        self._num += 1

    @property
    def result(self) -> Replay:
        """What came out so far."""
        return Replay(
            policy="as logged" if self._policy is None else self._policy.name,
            num_decisions=self._num,
            num_equal=self._num_equal,
            num_later_turns=self._num_later,
            num_kept=self._num_kept,
            new_tokens=self._new_tokens,
            requests_of=dict(self._requests_of),
            num_differing=self._num_differing,
            differing=tuple(self._differing),
        )

    def _named(self, name: str) -> Policy:
        policy = self._by_name.get(name)
        if policy is None:
            policy = self._by_name[name] = policy_named(name)
        return policy


def summary_of(decision: Decision | DecisionSummary) -> DecisionSummary:
    """Return the decision in short; of a summary, itself."""
    if isinstance(decision, DecisionSummary):
        return decision
    digest = hashlib.blake2b(msgspec.json.encode(decision), digest_size=8).hexdigest()
    return DecisionSummary(
        decision.policy, decision.source, decision.reason, decision.predicted_tokens, digest
    )


def replay(records: Iterable[DecisionRecord], policy: Policy | None) -> Replay:
    """Feed `records` to `policy`, or to the ones they name. One pass, O(candidates) each."""
    replayer = Replayer(policy)
    for record in records:
        replayer.add(record)
    return replayer.result
