"""Every planted cause is named in its turns, and no clean conversation is flagged."""

from collections import Counter
from typing import Any

import pytest

from benchmarks.planted_log import TEMPLATE, planted_log
from warmturn.check import check_conversations
from warmturn.formats.record import LoggedRequest
from warmturn.render import ChatTemplate


def logged(row: dict[str, Any], line: int, *, with_reply: bool) -> LoggedRequest:
    fields = dict.fromkeys(LoggedRequest.__dataclass_fields__)
    return LoggedRequest(
        **fields
        | {
            "source": "log.jsonl",
            "line": line,
            "request_id": row["request_id"],
            "conversation_id": row.get("conversation_id"),
            "model": row["model"],
            "timestamp_s": row["timestamp"],
            "messages": tuple(row["messages"]),
            "tools": tuple(row["tools"]) or None,
            "template_kwargs": {},
            "reply": row["reply"] if with_reply else None,
            "level": "full",
        }
    )


def score(seed: int, num_conversations: int, *, with_ids: bool, with_reply: bool):
    """Return the share of broken turns named per cause, and what was wrongly flagged."""
    log = planted_log(seed=seed, num_conversations=num_conversations, with_ids=with_ids)
    requests = [logged(row, n, with_reply=with_reply) for n, row in enumerate(log.rows, 1)]
    report = check_conversations(requests, template=ChatTemplate(TEMPLATE, special_tokens={}))
    turns = {turn.request_id: turn for turn in report.turns()}
    named: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    missed = []
    for truth in log.truth.values():
        if not with_reply and truth["planted"] == "reasoning":
            continue  # without the reply nobody can know what was not sent back
        if truth["needs_id"] and not with_ids:
            continue
        for request_id in truth["broken"]:
            wanted[truth["planted"]] += 1
            if truth["cause"] in turns[request_id].causes:
                named[truth["planted"]] += 1
            else:
                missed.append((request_id, truth["planted"], turns[request_id].causes))
    clean = [name for name, truth in log.truth.items() if truth["cause"] is None]
    flagged = [
        (turn.request_id, turn.causes)
        for turn in turns.values()
        if turn.request_id.rsplit("-", 1)[0] in clean and turn.verdict == "break"
    ]
    return {kind: named[kind] / wanted[kind] for kind in wanted}, flagged, missed


@pytest.mark.parametrize("with_reply", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_planted_causes_are_named_and_clean_conversations_are_not_flagged(seed, with_reply):
    shares, flagged, missed = score(seed, 60, with_ids=True, with_reply=with_reply)
    assert not flagged
    assert min(shares.values()) >= 0.95, missed


@pytest.mark.parametrize("with_reply", [True, False])
@pytest.mark.parametrize("seed", [4, 5])
def test_conversations_are_found_without_ids(seed, with_reply):
    shares, flagged, missed = score(seed, 60, with_ids=False, with_reply=with_reply)
    assert not flagged
    assert min(shares.values()) >= 0.95, missed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_the_full_count_of_conversations_scores_alike(seed):
    shares, flagged, missed = score(seed, 200, with_ids=True, with_reply=True)
    assert not flagged
    assert min(shares.values()) >= 0.95, missed
