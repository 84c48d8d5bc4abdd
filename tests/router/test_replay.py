from dataclasses import replace

import msgspec
import pytest

from tests.support.tiny_fleet import source
from warmturn.errors import InvalidInput
from warmturn.fleet import LoadView
from warmturn.router import (
    POLICY_NAMES,
    Candidate,
    DecisionRecord,
    Linear,
    PrefixHit,
    RoundRobin,
    RoutingRequest,
    policy_named,
    read_record,
    replay,
    write_record,
)


def log(policy, num: int = 12) -> list[DecisionRecord]:
    records, last = [], None
    for number in range(num):
        hits = {"a": 100 * number, "b": 50, "c": 0}
        candidates = tuple(
            Candidate(
                source(name),
                load=LoadView(smoothed_requests=number / 3, session_tokens=10 * number),
                hit=PrefixHit(hit, hit, hit),
                trust=1 / 3,
                is_alive=name != "c",
            )
            for name, hit in hits.items()
        )
        asked = RoutingRequest("s", 2000, number=number, last_source=last)
        decision = policy.choose(asked, candidates, float(number))
        records.append(DecisionRecord(float(number), asked, candidates, decision))
        last = decision.source
    return records


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_a_log_written_and_read_gives_every_decision_again(name):
    records = [read_record(write_record(record)) for record in log(policy_named(name))]
    assert records == log(policy_named(name))
    again = replay(records, policy_named(name))
    assert again.reproduces
    assert again.num_equal == again.num_decisions == 12


def test_another_policy_is_judged_on_the_same_views():
    records = log(RoundRobin())
    other = replay(records, Linear())
    assert not other.reproduces
    assert other.requests_of == {"a/0": 11, "b/0": 1}
    assert other.num_later_turns == 11
    assert other.new_tokens < replay(records, RoundRobin()).new_tokens


def test_a_decision_changed_in_the_log_is_found():
    records = log(Linear())
    changed = replace(records[3].decision, predicted_tokens=7)
    records[3] = replace(records[3], decision=changed)
    assert replay(records, Linear()).differing == (3,)


def test_a_record_holds_no_text_and_is_one_line():
    line = write_record(log(Linear())[5])
    assert b"\n" not in line
    assert msgspec.json.decode(line).keys() == {"at_s", "request", "candidates", "decision"}


@pytest.mark.parametrize("line", [b"", b"{}", b'{"at_s": "x"}', b"\xff"])
def test_a_line_that_is_no_record_is_refused(line):
    with pytest.raises(InvalidInput, match="decision log"):
        read_record(line)
