from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.support.tiny_fleet import source
from warmturn.errors import InvalidInput
from warmturn.fleet import LoadView
from warmturn.router import (
    POLICY_NAMES,
    Candidate,
    Content,
    DecisionLogWriter,
    DecisionRecord,
    Linear,
    PrefixHit,
    RoundRobin,
    RoutingRequest,
    TurnEnd,
    policy_named,
    read_decision_log,
    replay,
    summary_of,
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


def written(records, chains=None) -> list[bytes]:
    writer = DecisionLogWriter(key=b"k" * 16)
    lines = [writer.begin()]
    for number, record in enumerate(records):
        lines.append(writer.decision(record, None if chains is None else chains[number]))
    return b"".join(lines).splitlines(keepends=True)


def read(lines) -> list[DecisionRecord]:
    return [entry[0] for entry in read_decision_log(lines)]


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_a_log_written_and_read_gives_every_decision_again(name):
    records = read(written(log(policy_named(name))))
    assert [(r.at_s, r.request, r.candidates) for r in records] == [
        (r.at_s, r.request, r.candidates) for r in log(policy_named(name))
    ]
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


def test_the_smallest_change_of_a_reason_is_found_in_a_summary():
    decision = log(Linear())[3].decision
    first, *rest = decision.candidates
    changed = replace(decision, candidates=(replace(first, reason="other"), *rest))
    assert summary_of(changed) != summary_of(decision) == summary_of(summary_of(decision))


def test_only_what_changed_about_a_candidate_is_written_again():
    first, *later = (msgspec.json.decode(x) for x in written(log(Linear())) if x[:4] == b'["d"')
    assert len(first[3][0]) == 1 + 2 * 17
    # running load, and the three tiers of the hit, which grow; then the session's tokens
    assert [entry[1::2] for entry in later[0][3]] == [[4, 6, 7, 8, 9], [4, 6], [4, 6]]


def chain(*hashes):
    return np.array(hashes, np.uint64)


def contents(*chains) -> list[Content | None]:
    records = log(Linear(), num=len(chains))
    lines = written(records, chains)
    return [entry[1] for entry in read_decision_log(lines)]


def test_a_later_turn_names_its_parent_and_only_the_blocks_that_are_new():
    first, second, third = contents(chain(1, 2), chain(1, 2, 3), chain(1, 9, 8))
    assert (first.parent, first.num_parent_blocks, len(first.blocks)) == (None, 0, 2)
    assert (second.parent, second.num_parent_blocks, len(second.blocks)) == (0, 2, 1)
    assert (third.parent, third.num_parent_blocks, len(third.blocks)) == (None, 0, 3)
    assert third.blocks[0] == first.blocks[0]


def test_prompts_without_a_full_block_have_no_parent():
    none, empty, one, again = contents(None, chain(), chain(5), chain(5))
    assert none is None
    assert (empty.parent, empty.blocks, one.parent) == (None, (), None)
    assert (again.parent, again.num_parent_blocks, again.blocks) == (2, 1, ())


def test_block_hashes_cannot_be_compared_without_the_writers_key():
    one = DecisionLogWriter(key=b"a").decision(log(Linear())[0], chain(7))
    two = DecisionLogWriter(key=b"b").decision(log(Linear())[0], chain(7))
    assert one != two
    assert DecisionLogWriter(key=b"a").decision(log(Linear())[0], chain(7)) == one


def test_ends_of_turns_come_back():
    end = TurnEnd(3, prompt_tokens=10, cached_tokens=None, completion_tokens=2, ttft_s=0.25)
    writer = DecisionLogWriter(key=b"k")
    assert list(read_decision_log([writer.begin(), writer.end(end)])) == [end]


def test_each_file_can_be_read_by_itself():
    writer = DecisionLogWriter(key=b"k")
    first, second = log(Linear(), num=2)
    writer.begin()
    writer.decision(first)
    lines = (writer.begin() + writer.decision(second)).splitlines(keepends=True)
    assert read(lines)[0].candidates == second.candidates


@pytest.mark.parametrize(
    "line", [b"", b"{}", b'["d", 1]', b"\xff", b'["s", 5, "a", 0]', b'["d",1,[],[[9]],[],null]']
)
def test_a_line_that_is_no_record_is_refused_with_its_number(line):
    lines = [DecisionLogWriter(key=b"k").begin(), line]
    with pytest.raises(InvalidInput, match="line 2 of the decision log"):
        list(read_decision_log(lines))


def test_another_file_is_refused_at_its_first_line():
    with pytest.raises(InvalidInput, match="line 1 of the decision log"):
        list(read_decision_log([b'{"messages": []}']))
