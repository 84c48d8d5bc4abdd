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
from warmturn.router.views import Candidate, RoutingRequest

__all__ = ["DecisionRecord", "DecisionSummary", "Replay", "replay", "summary_of"]


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
    differing: tuple[int, ...]
    """Indices of records whose whole decision, prices and reasons included, came out differently."""

    @property
    def reproduces(self) -> bool:
        """Say whether every decision came out as logged."""
        return not self.differing


def summary_of(decision: Decision | DecisionSummary) -> DecisionSummary:
    """Return the decision in short; of a summary, itself."""
    if isinstance(decision, DecisionSummary):
        return decision
    digest = hashlib.blake2b(msgspec.json.encode(decision), digest_size=8).hexdigest()
    return DecisionSummary(
        decision.policy, decision.source, decision.reason, decision.predicted_tokens, digest
    )


def replay(records: Iterable[DecisionRecord], policy: Policy) -> Replay:
    """Feed `records` to `policy`. One pass, O(candidates) each."""
    made = [(r, policy.choose(r.request, r.candidates, r.at_s)) for r in records]
    later = [(r, d) for r, d in made if r.request.last_source is not None]
    requests_of: dict[str, int] = {}
    for _, decision in made:
        if decision.source is not None:
            name = str(decision.source)
            requests_of[name] = requests_of.get(name, 0) + 1
    return Replay(
        policy=policy.name,
        num_decisions=len(made),
        num_equal=sum(d.source == r.decision.source for r, d in made),
        num_later_turns=len(later),
        num_kept=sum(d.source == r.request.last_source for r, d in later),
        new_tokens=sum(r.request.prompt_tokens - d.predicted_tokens for r, d in made),
        requests_of=requests_of,
        differing=tuple(
            i for i, (r, d) in enumerate(made) if summary_of(d) != summary_of(r.decision)
        ),
    )
