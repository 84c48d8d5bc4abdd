"""Kinds and fields without an example in our own folder, on inputs of the same form."""

import json

import pytest

from tests.cases.discovery import Case
from tests.cases.kv_events import events
from tests.cases.part_3_router import affinity, fleet_choice, stream_usage


def block(number: int, parent: int | None = None, **fields):
    tokens = [10 * number + i for i in range(4)]
    return {
        "type": "BlockStored",
        "block_hashes": [number],
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": 4,
        **fields,
    }


def line(seq: int, *batch, worker: str = "w0", rank: int | None = 0):
    return {"worker": worker, "seq": seq, "batch": [1.0, list(batch), rank]}


def replayed(seq: int, *batch, worker: str = "w0"):
    digits = seq.to_bytes(8, "big", signed=True).hex()
    content = None if seq < 0 else [1.0, list(batch), 0]
    return {"worker": worker, "seq_hex": digits, "topic": "kv", "batch": content}


def answer(folder, lines, *, queries=(), replay=None, available_from=None, after=(), **fields):
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, lines)))
    if replay is not None:
        (folder / "replay.jsonl").write_text("\n".join(map(json.dumps, replay)))
    run = {
        "id": "main",
        "replay_file": None if replay is None else "replay.jsonl",
        "replay_available_from": available_from,
    }
    given = {
        "kind": "events",
        "events_file": "events.jsonl",
        "queries": [query(**q) for q in queries],
        "adapter_of_model": {},
        "runs": [run],
        "metrics_polls": [],
        "publishers": None,
    } | fields
    checkpoints = [{"after_line": number} for number in after]
    asked = {"runs": [{"id": "main", "checkpoints": checkpoints}]}
    case = Case("x", "3-router", "events", folder, given, asked)
    return events(case)["runs"][0]


def query(blocks, **fields):
    tokens = [10 * number + i for number in blocks for i in range(4)]
    return {
        "id": "q",
        "token_ids": tokens,
        "model": None,
        "cache_salt": None,
        "images": [],
    } | fields


GAP = [line(0, block(1)), line(3, block(4, 3)), line(4, block(5, 4))]
BUFFER = [replayed(n, block(n + 1, n or None)) for n in range(6)] + [replayed(-1)]


def test_a_replay_fills_the_gap_and_what_comes_live_is_not_applied_twice(tmp_path):
    found = answer(tmp_path, GAP, replay=BUFFER, queries=[{"blocks": range(1, 6)}], after=(1, 2, 3))
    overlaps = [point["overlap"]["q"]["w0"]["any"] for point in found["checkpoints"]]
    assert overlaps == [4, 16, 20]
    assert found["replay_requests"] == [{"line": 2, "worker": "w0", "from_seq": 1}]
    assert found["duplicates_dropped"] == 3, "3, 4 and 5 are or will be delivered live"
    assert found["final_state"]["w0"] == "EXACT"
    assert found["final_seq"] == {"w0": 4, "w0/0": 4}


def test_a_buffer_that_does_not_reach_back_leaves_the_source_degraded(tmp_path):
    found = answer(
        tmp_path, GAP, replay=BUFFER, available_from=2, queries=[{"blocks": (1, 2)}], after=(3,)
    )
    assert found["final_state"]["w0"] == "DEGRADED"
    assert found["checkpoints"][0]["overlap"]["q"]["w0"]["any"] == 4


def test_the_buffer_of_another_worker_answers_nothing(tmp_path):
    other = [{**entry, "worker": "w9"} for entry in BUFFER]
    found = answer(tmp_path, GAP, replay=other)
    assert found["final_state"]["w0"] == "DEGRADED"
    assert found["duplicates_dropped"] == 0


def test_a_worker_without_a_rank_is_the_best_of_its_ranks(tmp_path):
    lines = [line(0, block(1)), line(0, block(1), block(2, 1), rank=3)]
    found = answer(tmp_path, lines, queries=[{"blocks": (1, 2)}], after=(1, 2))
    assert [point["overlap"]["q"]["w0"]["any"] for point in found["checkpoints"]] == [4, 8]
    assert found["checkpoints"][1]["overlap"]["q"]["w0/3"]["any"] == 8
    assert found["checkpoints"][0]["overlap"]["q"]["w0/3"]["any"] == 0, "not heard of yet"


def test_adapters_and_images_of_a_query_select_their_own_blocks(tmp_path):
    lines = [
        line(0, block(1, lora_id=1, lora_name="sql")),
        line(0, block(1, extra_keys=[["cat"]]), worker="w1"),
        line(0, block(1, extra_keys=[[["cat", 2]]]), worker="w2"),
    ]
    image = {"hash": "cat", "offset": 2, "length": 2}
    adapters = {"m-sql": "sql"}
    for fields, holders in (
        ({"model": "m-sql"}, {"w0"}),
        ({"images": [image]}, {"w1", "w2"}),
        ({"model": "m"}, set()),
    ):
        asked = [{"blocks": (1,), **fields}]
        found = answer(tmp_path, lines, queries=asked, after=(3,), adapter_of_model=adapters)
        overlap = found["checkpoints"][0]["overlap"]["q"]
        assert {w for w in ("w0", "w1", "w2") if overlap[w]["any"]} == holders


def test_what_cannot_be_used_is_reported(tmp_path):
    hashes = [7, {"$bytes_hex": "ab" * 32}]
    unresolved = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None}
    unresolved |= {"token_ids": [], "block_size": 0, "medium": "CPU"}
    lines = [line(0, unresolved), line(1, ["Odd"]), line(2, ["BlockStored"]), line(1)]
    found = answer(tmp_path, lines)
    assert found["unresolved_hashes"] == hashes
    assert found["unknown_events"] == {"w0": 1}
    assert found["decode_errors"] == 1
    assert found["late_lines"] == [4]
    assert found["final_state"]["w0"] == "UNKNOWN"


def affinity_answer(requests):
    workers = {"replica_1": ["a", "b", "c"], "replica_2": ["c", "a", "b"], "after_loss": ["a", "b"]}
    given = {"affinity_header": "x-key", "requests": requests, "workers": workers}
    return affinity(Case("x", "3-router", "affinity", None, given, {"same_worker": []}))


@pytest.mark.parametrize("first_user", [None, "hello"])
def test_keyless_requests_share_no_constant(first_user):
    rows = [
        {
            "id": name,
            "headers": headers,
            "model": "m",
            "first_user": first_user and f"{first_user} {name}",
        }
        for name, headers in (("a", {}), ("b", {"x-request-id": "1"}), ("c", {"X-KEY": "k"}))
    ]
    found = affinity_answer(rows)
    assert found["no_key"] == ["a", "b"]
    assert not found["keyless_share_one_key"]
    assert found["same_across_replicas"]
    assert found["only_lost_workers_sessions_move"]


def test_a_stream_without_usage_has_unknown_cached_tokens(tmp_path):
    (tmp_path / "up.sse").write_text('data: {"choices":[{"delta":{}}]}\n\ndata: [DONE]\n\n')
    rows = [{"id": "a", "body": {"stream": True}}]
    given = {"upstream_file": "up.sse", "requests": rows}
    found = stream_usage(Case("x", "3-router", "stream-usage", tmp_path, given, {}))
    assert found["recorded_cached_tokens"] is None
    assert found["client_sees_usage_chunk"] == {"a": False}
    assert found["client_lines"]["a"] == ['data: {"choices":[{"delta":{}}]}', "data: [DONE]"]


def test_where_no_worker_lives_nothing_is_chosen():
    given = {
        "beta": 1.0,
        "workers": {"w0": {"load": 1, "alive": False}},
        "queries": [{"id": "q", "prompt": 10, "match": {"w0": 8}, "tree_size": {}}],
    }
    found = fleet_choice(Case("x", "3-router", "fleet-choice", None, given, {}))
    assert found["choice"] == {"q": None}
