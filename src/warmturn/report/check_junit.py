"""A checked log as JUnit XML: a suite per conversation, a test case per turn that continues."""

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from warmturn.check import ConversationCheck, TurnCheck
from warmturn.report.checked_log import CheckedLog, is_not_rendered, share_of
from warmturn.report.sides import visible
from warmturn.report.wording import fix_line, percent, place_of

__all__ = ["check_suite"]

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters XML 1.0 has no way to write."""


def check_suite(log: CheckedLog) -> Iterator[str]:
    """Yield the XML text, part by part. Failures the baseline knows come as skipped."""
    figures = log.figures
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield (
        f'<testsuites name="warmturn check" tests="{figures.num_later_turns}" '
        f'failures="{figures.num_new_failures}">\n'
    )
    for conversation in log.report.conversations:
        yield from _suite(log, conversation)
    yield "</testsuites>\n"


def _suite(log: CheckedLog, conversation: ConversationCheck) -> Iterator[str]:
    turns = [t for t in conversation.turns if t.parent_id is not None or is_not_rendered(t)]
    if not turns:
        return
    failing = [turn for turn in turns if log.is_new_failure(conversation, turn)]
    skipped = sum(_is_skipped(log, conversation, turn) for turn in turns)
    yield (
        f"<testsuite name={_attribute(conversation.conversation_id)} "
        f'tests="{len(turns)}" failures="{len(failing)}" skipped="{skipped}">\n'
    )
    for turn in turns:
        yield from _case(log, conversation, turn)
    yield "</testsuite>\n"


def _case(log: CheckedLog, conversation: ConversationCheck, turn: TurnCheck) -> Iterator[str]:
    name = f"turn {turn.turn + 1} ({turn.request_id})"
    suite = _attribute(conversation.conversation_id)
    yield f"<testcase classname={suite} name={_attribute(name)} file={_attribute(turn.source)}>"
    if log.is_new_failure(conversation, turn):
        yield f"<failure type={_attribute(turn.cause)} message={_attribute(_message(turn))}>"
        yield f"{escape(_clean(_details(turn)))}</failure>"
    elif _is_skipped(log, conversation, turn):
        why = turn.notes[0] if is_not_rendered(turn) else f"known: {turn.cause}"
        yield f"<skipped message={_attribute(why)}/>"
    yield "</testcase>\n"


def _is_skipped(log: CheckedLog, conversation: ConversationCheck, turn: TurnCheck) -> bool:
    return is_not_rendered(turn) or (turn.is_failure and not log.is_new_failure(conversation, turn))


def _message(turn: TurnCheck) -> str:
    share = share_of(turn)
    reuse = "" if share is None else f": {percent(share)} reused"
    return f"{turn.cause}{reuse}"


def _details(turn: TurnCheck) -> str:
    lines = [f"{turn.source}:{turn.line}, blame: {turn.blame}"]
    for finding in turn.findings:
        lines += [
            f"{finding.cause} {place_of(finding)}: {finding.detail}",
            f"  cached   {visible(finding.earlier_at)}",
            f"  sent now {visible(finding.later_at)}",
        ]
    if turn.token_finding is not None:
        lines.append(f"{turn.token_finding.cause}: {turn.token_finding.detail}")
    lines += [f"fix: {fix_line(fix)}" for fix in turn.fixes]
    return "\n".join((*lines, *turn.notes))


def _attribute(text: str) -> str:
    return quoteattr(_clean(visible(text)))


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
