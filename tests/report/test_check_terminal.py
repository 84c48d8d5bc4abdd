import io

import pytest
from rich.console import Console

from tests.support.checked import checked, clock_log, conversation
from warmturn.report import print_check


def printed(log, **options):
    out = io.StringIO()
    print_check(log, Console(file=out, **({"width": 100} | options)))
    return out.getvalue()


def test_each_conversation_has_a_line_with_the_broken_ones_first():
    lines = printed(clock_log()).splitlines()
    clock = next(i for i, line in enumerate(lines) if line.startswith("clock "))
    clean = next(i for i, line in enumerate(lines) if line.startswith("clean "))
    assert clock < clean
    assert "client.timestamp_in_system" in lines[clock]
    assert lines[clean].split()[-3:] == ["100", "%", "██"]


def test_a_break_shows_cause_blame_place_both_sides_and_the_proven_fix():
    text = printed(clock_log())
    assert "1  client.timestamp_in_system   blame: client" in text
    assert "clock, turn 3 (request clock-2, test:3): in messages[0]" in text
    assert "→ 100 %, proven by rendering" in text


def test_both_sides_stand_under_each_other_and_a_mark_under_the_break():
    lines = printed(clock_log()).splitlines()
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("cached"))
    cached, sent, mark = lines[at : at + 3]
    place = mark.index("^")
    assert cached[:place].replace("cached  ", "") == sent[:place].replace("sent now", "")
    assert cached[place] != sent[place]


def test_a_clean_log_has_no_cause():
    text = printed(checked(*conversation("clean")))
    assert "blame" not in text
    assert "0 broken" in text


def test_bad_lines_are_shown_and_the_rest_counted():
    text = printed(clock_log(num_bad_lines=7))
    assert "log.jsonl:1: not read: not valid JSON" in text
    assert "and 2 more lines that could not be read" in text


def test_of_many_conversations_the_worst_are_listed():
    log = checked(*(r for n in range(45) for r in conversation(f"c{n}", num_turns=1)))
    assert "and 5 more" in printed(log)


def test_markup_and_escape_sequences_of_the_log_are_printed_as_text():
    name = "[red]\x1b[2J"
    text = printed(checked(*conversation(name, say="[bold]\x1b]0;x")), force_terminal=True)
    assert "[red]\\x1b[2J" in text
    assert "\x1b[2J" not in text


@pytest.mark.parametrize("width", [10, 40, 200])
def test_every_width_is_printed(width):
    assert "reuse" in printed(clock_log(), width=width)


def test_requests_that_were_not_rendered_are_said():
    source = "{% if messages | length > 4 %}{{ raise_exception('too long') }}{% endif %}x"
    text = printed(checked(*conversation("any"), source=source))
    assert "1 requests not judged" in text
    assert "too long" in text
