"""Part 3, router and events."""

import json
from typing import Any

from tests.cases.discovery import Case
from tests.cases.kv_events import events

NUM_PROBES = 400
"""Sessions of the runner's own, to see which move when a worker is lost."""


def affinity(case: Case) -> dict[str, Any]:
    header, workers = case.input["affinity_header"], case.input["workers"]
    keys = {r["id"]: _identity(r, header) for r in case.input["requests"]}
    first, second = workers["replica_1"], workers["replica_2"]
    placed = {name: _place(identity.key, first) for name, identity in keys.items()}
    keyless = [name for name, identity in keys.items() if identity.name != header.lower()]
    probes = [f"session-{number}" for number in range(NUM_PROBES)]
    sessions = [*(identity.key for identity in keys.values()), *probes]
    return {
        "same_worker": [
            group for group in case.asked["same_worker"] if len({placed[n] for n in group}) == 1
        ],
        "no_key": keyless,
        "same_across_replicas": all(_place(s, first) == _place(s, second) for s in sessions),
        "keyless_share_one_key": len(keyless) > 1 and len({keys[n].key for n in keyless}) == 1,
        "only_lost_workers_sessions_move": _only_lost_move(
            sessions, workers["replica_1"], workers["after_loss"]
        ),
    }


def _identity(request: dict[str, Any], header: str) -> Any:
    from warmturn.session.identity import identify

    first = request["first_user"]
    messages = [] if first is None else [{"role": "user", "content": first}]
    body = {"model": request["model"], "messages": messages}
    return identify(request["headers"], body, session_header=header, once=request["id"])


def _place(session: str, workers: list[str]) -> str:
    from warmturn.fleet import SourceId
    from warmturn.router import Affinity, Candidate, RoutingRequest

    candidates = [Candidate(SourceId(worker)) for worker in workers]
    request = RoutingRequest(session=session, prompt_tokens=100)
    return Affinity().choose(request, candidates, 0.0).source.replica


def _only_lost_move(sessions: list[str], before: list[str], after: list[str]) -> bool:
    lost = set(before) - set(after)
    moved = [s for s in sessions if _place(s, before) != _place(s, after)]
    return all(_place(session, before) in lost for session in moved)


def stream_usage(case: Case) -> dict[str, Any]:
    from warmturn.formats import StreamUsage, upstream_stream_options, wants_usage

    upstream = case.read_text(case.input["upstream_file"]).encode()
    requests = {r["id"]: r["body"] for r in case.input["requests"]}
    lines: dict[str, list[str]] = {}
    cached_tokens: set[int | None] = set()
    for name, body in requests.items():
        if body.get("stream") is True:
            usage = StreamUsage(shown=wants_usage(body))
            seen = usage.feed(upstream) + usage.finish()
            lines[name] = [line for line in seen.decode().splitlines() if line]
            cached_tokens.add(usage.usage.cached_tokens)
    (recorded,) = cached_tokens or {None}
    return {
        "upstream_stream_options": {n: upstream_stream_options(b) for n, b in requests.items()},
        "client_sees_usage_chunk": {n: any(map(_is_usage, seen)) for n, seen in lines.items()},
        "recorded_cached_tokens": recorded,
        "client_lines": lines,
    }


def _is_usage(line: str) -> bool:
    try:
        event = json.loads(line.removeprefix("data:"))
    except ValueError:
        return False
    return isinstance(event, dict) and event.get("usage") is not None


def fleet_choice(case: Case) -> dict[str, Any]:
    decisions = {query["id"]: _choose(case, query) for query in case.input["queries"]}
    means = {
        entry.terms["mean_load_requests"]
        for decision in decisions.values()
        for entry in decision.candidates
        if entry.price is not None
    }
    return {
        "choice": {name: d.source and d.source.replica for name, d in decisions.items()},
        "mean_load": max(means, default=None),
        "scores": {
            name: {e.source.replica: -e.price for e in d.candidates if e.price is not None}
            for name, d in decisions.items()
        },
    }


def _choose(case: Case, query: dict[str, Any]) -> Any:
    from warmturn.fleet import LoadView, SourceId
    from warmturn.router import Candidate, Prefix, PrefixHit, RoutingRequest

    candidates = [
        Candidate(
            SourceId(name),
            is_alive=worker["alive"],
            load=LoadView(smoothed_requests=worker["load"]),
            hit=PrefixHit(any_tokens=query["match"].get(name, 0)),
        )
        for name, worker in case.input["workers"].items()
    ]
    request = RoutingRequest(session=query["id"], prompt_tokens=query["prompt"])
    return Prefix(beta=case.input["beta"]).choose(request, candidates, 0.0)


ANSWERS = {
    "events": (events, ()),
    "affinity": (affinity, ()),
    "stream-usage": (stream_usage, ()),
    "fleet-choice": (fleet_choice, ()),
}
