import pytest

from warmturn.errors import InvalidInput
from warmturn.horizon import estimate_from_log, think_report
from warmturn.session.turn_history import HistoryTurn, gaps


def turn(session, start, end, *, prompt=None, cached=None, reply=None, **fields):
    return HistoryTurn(
        session,
        start,
        end,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=reply,
        **fields,
    )


HISTORY = [
    # a comes back after 10 s and finds its 150 tokens, then after 60 s and does not
    turn("a", 0, 1, prompt=100, cached=32, reply=50, stop="end_turn"),
    turn("a", 11, 12, prompt=200, cached=144, reply=50, stop="end_turn"),
    turn("a", 72, 73, prompt=300, cached=32, reply=50, stop="tool_use"),
    # b comes back after 30 s, and never again
    turn("b", 0, 2, prompt=100, cached=32, reply=50, stop="end_turn"),
    turn("b", 32, 33, prompt=200, cached=144, reply=50, stop="end_turn"),
]


def test_the_report_by_hand():
    report = think_report(gaps(HISTORY), horizon_s=35, prefill_tokens_per_s=100)
    overall = report.overall
    assert (overall.curve.num_returned, overall.curve.num_open) == (3, 2)
    assert overall.curve.times_s == (10, 30, 60)
    assert report.num_sessions == 2
    assert report.tokens_per_turn == 150, "the median of 150, 250 and 150"
    assert overall.curve.shares == pytest.approx((1 / 4, 1 / 2, 1)), "b was watched for 40 s"
    assert overall.exposed.miss_share == pytest.approx(0.5)
    assert overall.exposed.lost_tokens_per_turn == pytest.approx(75)
    assert overall.exposed.lost_s_per_turn == pytest.approx(0.75)


def test_groups_are_by_turns_so_far_and_by_why_the_answer_ended():
    report = think_report(gaps(HISTORY))
    assert [(g.name, g.curve.num_returned, g.curve.num_open) for g in report.by_turn] == [
        ("1", 2, 0),
        ("2", 1, 1),
        ("3-4", 0, 1),
    ]
    assert [(g.name, g.curve.num_returned) for g in report.by_stop] == [
        ("end_turn", 3),
        ("tool_use", 0),
    ]
    assert report.overall.exposed is None, "no horizon was given"


def test_the_log_s_own_hits_and_misses_bracket_the_horizon():
    """32 shared tokens are found by everybody: the miss at 60 s is a miss all the same."""
    bracket = think_report(gaps(HISTORY)).bracket
    assert (bracket.lower_s, bracket.upper_s) == (30, 60)
    assert bracket.classes == ("hit", "age", "hit")


def test_a_shared_system_prompt_that_is_most_of_a_turn_is_no_hit():
    first = turn("a", 0, 1, prompt=100, cached=80, reply=10)
    later = turn("a", 61, 62, prompt=150, cached=80, reply=10)
    assert think_report(gaps([first, later])).bracket.classes == ("age",)


def test_without_cached_tokens_there_is_no_bracket():
    plain = [turn("a", 0, 1), turn("a", 5, 6)]
    report = think_report(gaps(plain), horizon_s=1)
    assert report.bracket is None
    assert report.tokens_per_turn is None
    assert report.overall.exposed.miss_share == 1


def test_times_from_starts_are_counted():
    assert think_report(gaps([turn("a", 0, None), turn("a", 5, None)])).num_from_starts == 2


def test_single_requests_tell_nothing_of_think_time():
    with pytest.raises(InvalidInput, match="no conversation with a second turn"):
        think_report(gaps([turn("a", 0, 1), turn("b", 0, 1)]))


# --- rates ------------------------------------------------------------------------------------


def test_rates_of_a_log_by_hand():
    """900 prompt tokens less 384 cached, 250 generated, over 73 s; five runs hold tokens."""
    found = estimate_from_log(HISTORY, gaps(HISTORY), pool_tokens=1000)
    assert found.window_s == 73
    assert found.miss_tokens_per_s == pytest.approx((900 - 384) / 73)
    assert found.generated_tokens_per_s == pytest.approx(250 / 73)
    assert found.pinned_tokens == pytest.approx((150 + 250 + 350 + 2 * 150 + 250) / 73)
    assert found.horizon_s == pytest.approx((1000 - found.pinned_tokens) / ((900 - 384 + 250) / 73))
    assert (found.bracket.lower_s, found.bracket.upper_s) == (30, 60)


def test_without_a_pool_there_is_no_horizon_and_without_ends_nothing_pinned():
    starts = [turn("a", 0, None, prompt=10), turn("a", 5, None, prompt=10)]
    found = estimate_from_log(starts, gaps(starts))
    assert found.horizon_s is None
    assert found.pinned_tokens is None


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([turn("a", 0, 1)], "none with token counts"),
        ([turn("a", 0, None, prompt=1)] * 2, "one time"),
    ],
)
def test_logs_that_have_no_rates_are_refused(turns, words):
    with pytest.raises(InvalidInput, match=words):
        estimate_from_log(turns, gaps(turns))
