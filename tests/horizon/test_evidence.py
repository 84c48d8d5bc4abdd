import pytest

from warmturn.errors import InvalidInput
from warmturn.horizon import (
    Calibration,
    LoggedGap,
    ProbeFacts,
    Replay,
    SplitUsage,
    bracket_horizon,
    calibrate,
    check_reuse,
    classify,
    prefill_evidence,
)


def facts(**fields):
    return ProbeFacts(**{"prompt_tokens": 4000, "cached_tokens": 3984, "block_size": 16} | fields)


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "hit"),
        ({"cached_tokens": 0}, "miss"),
        ({"cached_tokens": 16}, "miss"),  # a shared first block is no conversation
        ({"cached_tokens": None}, "unknown"),
        ({"prompt_tokens": None}, "unknown"),
        ({"wants_prompt_logprobs": True, "cached_tokens": 0}, "inconclusive"),
        ({"prompt_tokens": 16, "cached_tokens": 0}, "inconclusive"),
        ({"salt": "a", "warm_salt": "b"}, "invalid"),
        ({"salt": "a"}, "invalid"),
        ({"model": "a", "warm_model": "b"}, "invalid"),
        ({"model": "a"}, "hit"),  # not told is not another
        ({"process_start_s": 1.0, "warm_process_start_s": 2.0}, "flushed"),
        ({"process_start_s": 1.0, "warm_process_start_s": 1.0}, "hit"),
    ],
)
def test_what_a_probe_proves(fields, verdict):
    assert classify(facts(**fields)) == verdict


def test_only_the_prefill_side_tells_what_was_reused():
    reports = [SplitUsage("decode", 10, 9), SplitUsage("prefill", 10, 4)]
    assert prefill_evidence(reports) == reports[1]
    assert prefill_evidence(reports[:1]) is None


# --- calibration ------------------------------------------------------------------------------


def replays(rule, lengths=(20, 33, 64, 65, 100, 129, 1000)):
    return [Replay(n, rule.most_cached(n)) for n in lengths]


@pytest.mark.parametrize("granularity", [1, 16, 64, 128])
@pytest.mark.parametrize("drops", [False, True])
def test_the_rule_of_an_engine_is_found_from_its_replays(granularity, drops):
    rule = Calibration(granularity, drops)
    assert calibrate(replays(rule, (20, 33, 64, 65, 100, 129, 300, 513, 1000))) == rule


def test_one_evicted_replay_does_not_spoil_it():
    rule = Calibration(16, drops_last_block=False)
    assert calibrate([*replays(rule), Replay(500, 0)]) == rule


@pytest.mark.parametrize(
    ("rule", "shortest"), [(Calibration(16, False), 17), (Calibration(16, True), 33)]
)
def test_the_shortest_probe_that_can_tell(rule, shortest):
    assert rule.min_probe_tokens == shortest
    assert rule.most_cached(shortest) > 0
    assert rule.most_cached(shortest - 1) == 0


@pytest.mark.parametrize(
    ("cached", "verdict", "share"),
    [(48, "resident", 1), (16, "partial", 1 / 3), (0, "evicted", 0)],
)
def test_probes_are_judged_by_the_rule(cached, verdict, share):
    rule = Calibration(16, drops_last_block=False)
    assert rule.judge(Replay(64, cached)) == verdict
    assert rule.residency(Replay(64, cached)) == pytest.approx(share)


def test_a_prompt_too_short_to_tell_is_inconclusive():
    rule = Calibration(16, drops_last_block=False)
    assert rule.judge(Replay(16, 0)) == "inconclusive"
    assert rule.residency(Replay(16, 0)) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "nothing cached"),
        ([Replay(100, 0)] * 3, "nothing cached"),
        ([Replay(100, 7), Replay(101, 50), Replay(102, 13), Replay(103, 99)], "no rule"),
    ],
)
def test_replays_that_tell_no_rule_are_refused(given, words):
    with pytest.raises(InvalidInput, match=words):
        calibrate(given)


# --- gaps -------------------------------------------------------------------------------------


def test_the_bracket_lies_between_the_longest_hit_and_the_shortest_aged_miss():
    turns = [LoggedGap(10, 90, 5), LoggedGap(30, 90, 5), LoggedGap(50, 0, 95)]
    turns += [LoggedGap(80, 3, 95), LoggedGap(20, 0, 95)]
    found = bracket_horizon(turns)
    assert (found.lower_s, found.upper_s) == (30, 50)
    assert found.classes == ("hit", "hit", "age", "age", "contradiction")


def test_first_turns_and_other_models_say_nothing():
    turns = [LoggedGap(99, 90, 5, is_model_changed=True), LoggedGap(5, 0, 9, is_first=True)]
    found = bracket_horizon(turns)
    assert (found.lower_s, found.upper_s) == (0, float("inf"))
    assert found.classes == ("model_change", "first_turn")


# --- counters against requests ----------------------------------------------------------------


def check(requests, queries, hits, **more):
    counters = {"vllm:gpu_prefix_cache_queries": queries, "vllm:gpu_prefix_cache_hits": hits}
    return check_reuse(requests, counters | more)


def test_equal_accounts_do_not_contradict():
    found = check([(100, 40), (100, 0)], 200, 40)
    assert not found.is_contradiction
    assert found.trust == "per-request"
    assert found.num_preemptions is None


def test_requests_looked_up_again_inflate_the_counters():
    found = check([(100, 0), (100, 0)], 300, 100, **{"vllm:num_preemptions_total": 1})
    assert found.is_contradiction
    assert (found.extra_queries, found.extra_hits, found.num_preemptions) == (100, 100, 1)
    assert found.trust == "per-request"


def test_counters_stuck_at_zero_are_not_believed():
    found = check([(100, 80)], 100, 0)
    assert found.is_contradiction
    assert found.trust == "per-request"


def test_requests_that_report_nothing_are_not_believed():
    assert check([(100, 0), (100, 0)], 200, 150).trust == "counters"


def test_nothing_to_compare_is_refused():
    with pytest.raises(InvalidInput, match="nothing to compare"):
        check([], 100, 0)
