"""What the gateway's metrics say of this moment: members, loads, balance, trust, the log."""

from collections.abc import Iterator, Sequence
from typing import Any

from warmturn.fleet import SourceState
from warmturn.gateway.data_path import DataPath
from warmturn.gateway.decision_log import DecisionLogFile
from warmturn.gateway.gateway_metrics import Gauge, Gauges
from warmturn.gateway.health import ReplicaState
from warmturn.gateway.membership import Membership
from warmturn.gateway.replica_status import ReplicaStatus
from warmturn.gateway.steering import GatewaySteering

__all__ = ["gauges_of", "imbalance"]


def gauges_of(
    steering: GatewaySteering,
    membership: Membership,
    data_path: DataPath,
    decision_log: DecisionLogFile | None,
    clock: Any,
) -> Gauges:
    """Return what to ask at each scrape."""

    def gauges() -> Iterator[Gauge]:
        statuses = steering.replicas(clock())
        for member in membership.members.values():
            for state in ReplicaState:
                labels = {"replica": member.replica, "state": state}
                is_it = float(member.health.state is state)
                yield "replica_state", "1 for the state each replica is in.", labels, is_it
            labels = {"replica": member.replica}
            is_draining = float(member.drain_start_s is not None)
            yield "replica_draining", "1 while it hands its sessions over.", labels, is_draining
        for status in statuses:
            yield from _of_source(status)
        yield from _of_fleet(statuses)
        yield "turns_running", "Calls in flight.", {}, float(steering.dispatcher.num_open)
        yield "connections", "Clients connected.", {}, float(data_path.num_connections)
        sessions = float(len(steering.dispatcher.bindings))
        yield "sessions", "Sessions that have a place here.", {}, sessions
        errors = float(steering.num_routing_errors)
        yield "routing_errors_total", "Decisions that failed; affinity made them.", {}, errors
        for name, count in data_path_counts(data_path).items():
            meaning = "Counts of the data path since the start, by what was counted."
            yield "data_path_total", meaning, {"what": name}, float(count)
        if decision_log is not None:
            lost = float(decision_log.num_lost)
            yield "decision_log_lost_total", "Log entries that were not written.", {}, lost

    return gauges


def data_path_counts(data_path: DataPath) -> dict[str, int]:
    """Return the data path's own counts by name, without their prefix."""
    counts = data_path.counts
    names = [name for name in type(counts).__slots__ if name.startswith("num_")]
    return {name.removeprefix("num_"): getattr(counts, name) for name in names}


def imbalance(values: Sequence[float]) -> float | None:
    """Return the largest over the mean; None where there is nothing to compare."""
    total = sum(values)
    return max(values) * len(values) / total if total else None


def _of_source(status: ReplicaStatus) -> Iterator[Gauge]:
    labels = {"replica": str(status.source.replica), "rank": str(status.source.rank)}
    own, others = float(status.num_own), float(status.num_others)
    yield "replica_running", "Calls of this gateway there.", labels, own
    yield "replica_running_others", "Requests of others there, by its metrics.", labels, others
    load = status.smoothed_requests
    yield "replica_load", "Requests there, averaged over seconds.", labels, load
    queued = float(status.queued_prefill_tokens)
    yield "replica_queued_prefill_tokens", "Prompt tokens not yet prefilled.", labels, queued
    tokens = float(status.session_tokens)
    yield "replica_session_tokens", "Tokens of the sessions bound there.", labels, tokens
    share = status.delivered_share
    yield "replica_delivered_share", "Recent share of expected hits that came.", labels, share
    blocks = float(status.index_blocks)
    yield "replica_index_blocks", "Blocks the index believes to be there.", labels, blocks
    for state in SourceState if status.events is not None else ():
        is_it = float(status.events == state)
        by_state = {**labels, "state": str(state)}
        yield "replica_events", "1 for the state of its events.", by_state, is_it
    if status.capacity_tokens is not None:
        capacity = float(status.capacity_tokens)
        yield "replica_capacity_tokens", "Tokens its pool holds.", labels, capacity


def _of_fleet(statuses: Sequence[ReplicaStatus]) -> Iterator[Gauge]:
    meaning = "Busiest source over the mean, by what is compared."
    for what, values in {
        "placements": [status.num_placed / status.weight for status in statuses],
        "load": [status.smoothed_requests / status.weight for status in statuses],
        "session_tokens": [status.session_tokens / status.weight for status in statuses],
    }.items():
        if (found := imbalance(values)) is not None:
            yield "imbalance", meaning, {"of": what}, found
