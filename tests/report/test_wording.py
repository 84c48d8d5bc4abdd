from dataclasses import replace

import pytest

from tests.support.checked import checked, clock_log, conversation
from tests.support.tiny_renderer import TinyTokenizer
from warmturn.check import Fix
from warmturn.check.report import WindowStep
from warmturn.report.wording import (
    cost_line,
    fix_line,
    percent,
    place_of,
    spark_line,
    summary_line,
    turn_name,
    worst_share,
)


@pytest.mark.parametrize(
    ("share", "shown"), [(1.0, "100 %"), (0.9999, "99 %"), (0.29, "29 %"), (0, "0 %")]
)
def test_only_all_is_a_hundred_percent(share, shown):
    assert percent(share) == shown


def test_a_spark_line_has_a_bar_per_turn_that_continues_another():
    broken, clean = clock_log().report.conversations
    assert spark_line(clean) == "██"
    assert len(spark_line(broken)) == 2
    assert set(spark_line(broken)) <= set("▁▂▃▄▅")


def test_of_many_turns_the_newest_are_drawn():
    long = checked(*conversation("long", num_turns=30)).report.conversations[0]
    assert spark_line(long) == "…" + "█" * 24


def test_one_turn_has_no_least_share():
    assert worst_share(checked(*conversation("one", num_turns=1)).report.conversations[0]) is None


def test_the_place_is_the_message_or_the_tools_or_the_character():
    finding = next(iter(clock_log().failures()))[1].findings[0]
    assert place_of(finding) == "in messages[0]"
    assert place_of(None) == "in the prompt's tokens"


def test_costs_say_that_they_are_estimated_without_a_tokenizer():
    log = clock_log()
    assert cost_line(log, log.figures.causes[0]).startswith("about ")
    assert "blocks" not in cost_line(log, log.figures.causes[0])


def test_costs_are_tokens_blocks_and_seconds_with_a_tokenizer_and_a_rate():
    log = clock_log(tokenizer=TinyTokenizer(), prefill_tokens_per_s=100.0)
    line = cost_line(log, log.figures.causes[0])
    assert "blocks of 16)" in line
    assert "in 2 turns" in line
    assert line.endswith("s of prefill")


def test_an_engine_that_resumes_from_the_end_has_no_blocks():
    log = clock_log(tokenizer=TinyTokenizer(), engine="exact-end")
    assert "blocks" not in cost_line(log, log.figures.causes[0])


def test_a_fix_states_its_proof_and_its_price():
    fix = Fix("template.x", "set a=True", 0.5, 1.0, True, 120, 14)
    assert fix_line(fix) == (
        "set a=True: reuse 50 % → 100 %, proven by rendering; +120 tokens of context in that "
        "turn; the context is full at turn 14"
    )


def test_a_window_states_how_many_turns_only_append():
    step = WindowStep(6, 18, 0.91, 40, 0.0)
    fix = Fix("client.history_window_slide", "let it grow", 0.5, 0.91, True, window=step)
    assert fix_line(fix) == "let it grow: 0 % → 91 % of turns only append (40 turns rendered)"


def test_the_summary_counts_what_failed_and_what_is_known():
    line = summary_line(clock_log())
    assert line.startswith("6 requests in 2 conversations: 4 later turns, 2 broken, 2 under 90 %")
    known = frozenset({("clock", 1, "client.timestamp_in_system")})
    assert "1 under 90 % reuse and 1 more that the baseline knows" in summary_line(
        clock_log(known=known)
    )


def test_a_request_without_an_id_is_named_by_its_line_once():
    log = checked(*(replace(r, request_id=None) for r in conversation("one", num_turns=2)))
    (one,) = log.report.conversations
    assert turn_name("one", one.turns[1]) == "one, turn 2 (test:2)"
