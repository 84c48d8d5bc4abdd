"""What the sessions API shows of a source and of a session: plain values, as of one moment."""

from collections.abc import Sequence
from dataclasses import dataclass

from warmturn.fleet import Beliefs, LearnedRates, SourceId
from warmturn.router import SourceAccount

__all__ = ["ReplicaStatus", "SessionStatus", "replica_status"]


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One source: a replica, or one data-parallel rank of it."""

    source: SourceId
    models: tuple[str, ...]
    """Empty: any."""
    is_alive: bool
    why_dead: str | None
    is_draining: bool
    weight: float
    capacity_tokens: int | None
    num_own: int
    """Requests of this gateway there."""
    num_others: int
    smoothed_requests: float
    queued_prefill_tokens: int
    num_placed: int
    """Since the gateway's start, or since it was added."""
    session_tokens: int
    rates: LearnedRates
    delivered_share: float
    """Recent share of believed hits that came."""
    predicted_tokens: int
    delivered_tokens: int
    events: str | None
    """How much of its events is known: `EXACT`, `DEGRADED`, `UNKNOWN`; None: it publishes none."""
    index_blocks: int
    """Blocks it is believed to hold."""


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """Where a session is."""

    key: str
    model: str | None
    source: SourceId
    num_tokens: int
    """Of its last prompt and answer."""
    idle_s: float


def replica_status(
    account: SourceAccount,
    *,
    session_tokens: int,
    why_dead: str | None,
    beliefs: Sequence[Beliefs],
    now: float,
) -> ReplicaStatus:
    """Return an account, and what is believed of its source, as values."""
    states = [b.state(account.source) for b in beliefs]
    return ReplicaStatus(
        source=account.source,
        models=tuple(sorted(account.models)),
        is_alive=account.is_alive,
        why_dead=why_dead,
        is_draining=account.drain_start_s is not None,
        weight=account.weight,
        capacity_tokens=account.capacity_tokens,
        num_own=account.num_own,
        num_others=account.num_others,
        smoothed_requests=account.smoothed_requests(now),
        queued_prefill_tokens=account.queued_prefill_tokens,
        num_placed=account.num_placed,
        session_tokens=session_tokens,
        rates=account.rates,
        delivered_share=account.feedback.delivered_share,
        predicted_tokens=account.feedback.predicted_tokens,
        delivered_tokens=account.feedback.delivered_tokens,
        events=next((str(state) for state in states if state is not None), None),
        index_blocks=sum(b.num_blocks(account.source) for b in beliefs),
    )
