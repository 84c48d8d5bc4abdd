import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.errors import InvalidInput
from warmturn.gateway.health import Health, HealthRule, ReplicaState

RULE = HealthRule(probe_failures=2, traffic_failures=3, open_s=1.0, max_open_s=4.0)


def up(now=0.0):
    health = Health(RULE, now=now)
    assert health.probed(now, failure=None)
    return health


def test_an_unknown_replica_is_sent_nothing_until_a_probe_comes_back():
    health = Health(RULE, now=0.0)
    assert (health.state, health.is_alive) == (ReplicaState.UNKNOWN, False)
    assert health.probed(1.0, failure=None)
    assert (health.state, health.is_alive, health.since_s) == (ReplicaState.UP, True, 1.0)


def test_one_failed_probe_changes_nothing_and_two_in_a_row_do():
    health = up()
    assert not health.probed(1.0, failure="timeout")
    assert not health.probed(2.0, failure=None)
    assert not health.probed(3.0, failure="timeout")
    assert health.state is ReplicaState.UP
    assert health.probed(4.0, failure="timeout")
    assert (health.state, health.why) == (ReplicaState.DOWN, "probes failed: timeout")


def test_the_first_probe_that_comes_back_ends_down_and_the_first_answer_half_open():
    health = up()
    for now in (1.0, 2.0):
        health.probed(now, failure="timeout")
    assert health.probed(3.0, failure=None)
    assert health.state is ReplicaState.HALF_OPEN
    assert not health.answered(3.1)  # was alive already
    assert health.state is ReplicaState.UP


def test_three_failed_tries_in_a_row_open_the_breaker():
    health = up()
    assert not health.failed("closed", 1.0)
    assert not health.failed("timeout", 1.0)
    assert not health.answered(1.5)
    assert not health.failed("closed", 2.0)
    assert not health.failed("closed", 2.0)
    assert health.failed("status 503", 2.0)
    assert (health.state, health.why) == (ReplicaState.OPEN, "requests failed: status 503")


def test_a_refused_connection_opens_it_at_once():
    health = up()
    assert health.failed("connect", 1.0)
    assert health.state is ReplicaState.OPEN


def test_an_open_breaker_rests_and_rests_longer_each_time():
    health, now, rests = up(), 0.0, []
    for _ in range(4):
        health.failed("connect", now)
        rests.append(health.rest_until_s - now)
        assert not health.probed(health.rest_until_s - 0.01, failure=None)
        assert health.probed(health.rest_until_s, failure=None)
        now += rests[-1]
    assert rests == [1.0, 2.0, 4.0, 4.0]
    health.answered(now)
    health.failed("connect", now)
    assert health.rest_until_s == now + 1.0  # an answer made it a good replica again


def test_one_failure_while_half_open_is_enough():
    health = up()
    health.failed("connect", 0.0)
    health.probed(1.0, failure=None)
    assert health.failed("closed", 1.1)
    assert health.state is ReplicaState.OPEN


def test_late_answers_and_failures_of_before_change_nothing_while_it_rests():
    health = up()
    health.failed("connect", 0.0)
    assert not health.answered(0.1)
    assert not health.failed("connect", 0.1)
    assert (health.state, health.num_opened) == (ReplicaState.OPEN, 1)


def test_a_rule_without_counts_is_refused():
    with pytest.raises(InvalidInput, match="0 failed probes"):
        HealthRule(probe_failures=0, traffic_failures=3, open_s=1.0, max_open_s=4.0)


SEEN = st.sampled_from(["probe", "probe fails", "answer", "connect", "closed"])


@given(st.lists(st.tuples(SEEN, st.floats(0, 5)), max_size=60))
def test_whatever_is_seen_the_invariants_hold_and_changes_are_reported(events):
    health, now = Health(RULE, now=0.0), 0.0
    for seen, wait_s in events:
        now += wait_s
        before = health.is_alive
        match seen:
            case "probe":
                changed = health.probed(now, failure=None)
            case "probe fails":
                changed = health.probed(now, failure="timeout")
            case "answer":
                changed = health.answered(now)
            case why:
                changed = health.failed(why, now)
        assert changed == (health.is_alive != before)
        health.check()


@given(st.lists(SEEN, max_size=30))
def test_a_replica_that_works_again_is_up_again_in_the_end(events):
    health = Health(RULE, now=0.0)
    for seen in events:
        if seen.startswith("probe"):
            health.probed(1.0, failure="x" if seen == "probe fails" else None)
        else:
            health.failed("connect", 1.0)
    health.probed(1.0 + RULE.max_open_s, failure=None)
    health.answered(1.0 + RULE.max_open_s)
    assert health.state is ReplicaState.UP
