"""Checked logs for the tests of reports: a conversation with a clock, and a clean one."""

from tests.support.logged import PLAIN, assistant, request, system, template, user
from warmturn.check import Settings, check_conversations
from warmturn.formats import BadLine
from warmturn.report import CheckedLog

RULES = "You answer for a library. Books are lent for four weeks, films for one week only."


def conversation(name, *, orders=lambda turn: RULES, num_turns=3, say="question"):
    """Return the requests of a conversation; `orders` gives the system text of each turn."""
    messages, found = [], []
    for turn in range(num_turns):
        messages.append(user(f"{say} {turn} of {name}?"))
        found.append(
            request(
                system(orders(turn)),
                *messages,
                name=f"{name}-{turn}",
                conversation_id=name,
                reply=assistant(f"answer {turn}"),
                line=turn + 1,
            )
        )
        messages.append(assistant(f"answer {turn}"))
    return found


def clock(turn):
    return f"Current time: 2026-03-02 10:0{turn}:00. {RULES}"


def checked(*requests, source=PLAIN, tokenizer=None, num_bad_lines=0, **fields):
    """Return the checked log of these requests."""
    report = check_conversations(
        requests, template=template(source), tokenizer=tokenizer, settings=Settings()
    )
    bad = tuple(BadLine("log.jsonl", n + 1, "not valid JSON") for n in range(num_bad_lines))
    fields = {"files": ("log.jsonl",), "rendered_with": "rendered with t.jinja"} | fields
    return CheckedLog(
        report=report, fail_under=0.9, num_bad_lines=num_bad_lines, bad_lines=bad[:5], **fields
    )


def clock_log(**fields):
    """Return a log of one conversation with a clock and one without."""
    return checked(*conversation("clock", orders=clock), *conversation("clean"), **fields)
