import pytest

from warmturn.formats import LoggedRequest
from warmturn.session.turn_history import HistoryTurn, gaps, history_turn


def turn(session, start, end=None, **fields):
    return HistoryTurn(session, start, end, **fields)


def seconds(turns, **options):
    return [(g.session, g.num_turns, g.seconds, g.is_open) for g in gaps(turns, **options)]


def test_think_time_is_from_the_end_of_an_answer_to_the_next_request():
    turns = [turn("a", 0, 4), turn("b", 1, 2), turn("a", 24, 30)]
    assert seconds(turns) == [("a", 1, 20, False), ("a", 2, 0, True), ("b", 1, 28, True)]


def test_the_log_s_order_does_not_matter():
    turns = [turn("a", 24, 30), turn("a", 0, 4)]
    assert seconds(turns, log_end_s=40) == [("a", 1, 20, False), ("a", 2, 10, True)]


def test_without_ends_it_is_from_start_to_start_and_says_so():
    (first, last) = gaps([turn("a", 0), turn("a", 24)])
    assert (first.seconds, first.basis) == (24, "request-start")
    assert last.is_open


def test_a_parallel_request_gives_no_think_time_and_the_later_end_counts():
    """The second began while the first still answered; the first ended last."""
    turns = [turn("a", 0, 10), turn("a", 2, 5), turn("a", 15, 16)]
    assert seconds(turns) == [("a", 2, 5, False), ("a", 3, 0, True)]


def test_what_a_gap_lies_between_is_kept():
    first, second = turn("a", 0, 1, stop="tool_use"), turn("a", 3, 4, cached_tokens=7)
    gap = gaps([first, second])[0]
    assert (gap.before, gap.after) == (first, second)


def test_no_turns_give_no_gaps():
    assert gaps([]) == []


def request(**fields):
    return LoggedRequest(source="x", line=1, level="full", **fields)


def test_a_logged_request_becomes_a_turn():
    logged = request(
        conversation_id="c",
        timestamp_s=5.0,
        end_s=7.0,
        messages=({"role": "user", "content": "Hi"},),
        finish_reason="stop",
        reply={"role": "assistant", "tool_calls": [{}]},
        prompt_tokens=9,
        cached_tokens=3,
        completion_tokens=2,
    )
    found = history_turn(logged)
    assert (found.session, found.start_s, found.end_s, found.stop) == ("c", 5, 7, "tool_use")
    assert (found.prompt_tokens, found.cached_tokens, found.completion_tokens) == (9, 3, 2)


def test_a_request_without_time_is_none():
    assert history_turn(request(prompt_text="Hi")) is None


@pytest.mark.parametrize(
    ("first", "second", "other"),
    [
        (
            {"messages": ({"role": "user", "content": "Hi"},)},
            {
                "messages": (
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "Hello"},
                    {"role": "user", "content": "And?"},
                )
            },
            {"messages": ({"role": "user", "content": "Other"},)},
        ),
        (
            {"prompt_text": "long beginning" * 30},
            {"prompt_text": "long beginning" * 40},
            {"prompt_text": "another one" * 40},
        ),
        (
            {"prompt_token_ids": tuple(range(300))},
            {"prompt_token_ids": tuple(range(400))},
            {"prompt_token_ids": tuple(range(1, 300))},
        ),
    ],
)
def test_unnamed_conversations_are_told_apart_by_their_beginning(first, second, other):
    keys = [history_turn(request(timestamp_s=1.0, **f)).session for f in (first, second, other)]
    assert keys[0] == keys[1] != keys[2]
