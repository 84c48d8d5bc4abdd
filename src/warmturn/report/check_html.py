"""A checked log as one page that needs nothing else: no network, no script, light and dark.

Everything that comes from the log goes through `escape`, quotes included.
"""

from collections.abc import Iterator
from html import escape
from itertools import islice

from warmturn.check import ConversationCheck, Finding
from warmturn.report.checked_log import CauseGroup, CheckedLog, share_of
from warmturn.report.plot import reuse_plot
from warmturn.report.sides import aligned_sides, visible
from warmturn.report.wording import (
    cost_line,
    fix_line,
    percent,
    place_of,
    summary_line,
    turn_name,
    worst_share,
)

__all__ = ["check_page"]

MOST_CONVERSATIONS = 1000
"""On the page; a browser is slow with more, and JSON has all."""

_SIDE_CHARS = 96

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --back: #fff; --soft: #59636e; --line: #d1d9e0;
  --high: #1a7f5a; --low: #c0392b; --mark: #ffe3e0; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #14181d; --soft: #9aa4af;
  --line: #3a424c; --high: #3fb68b; --low: #ff7b6b; --mark: #5a2420; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: middle; } td.number, th.number { text-align: right; }
code, pre { font: .875rem/1.5 ui-monospace, monospace; }
pre { overflow-x: auto; padding: .5rem; border: 1px solid var(--line); border-radius: 4px; }
mark { color: inherit; background: var(--mark); } .broken { color: var(--low); font-weight: 600; }
rect.high { fill: var(--high); } rect.low { fill: var(--low); }
line.limit { stroke: var(--soft); stroke-dasharray: 3 3; } svg { display: block; }
"""


def check_page(log: CheckedLog) -> Iterator[str]:
    """Yield the page as HTML, part by part."""
    title = f"Reuse of {', '.join(log.files)}"
    yield from (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{_text(title)}</h1><p><strong>{_text(summary_line(log))}</strong></p>",
        f'<p class="soft">{_text(log.rendered_with)}</p>',
    )
    yield from _bad_lines(log)
    yield from _causes(log)
    yield from _conversations(log)
    yield "</main></body></html>\n"


def _text(text: str) -> str:
    return escape(visible(text))


def _bad_lines(log: CheckedLog) -> Iterator[str]:
    if log.num_bad_lines:
        yield f"<p>{log.num_bad_lines:,} lines could not be read; the first:</p><ul>"
        for bad in log.bad_lines:
            yield f"<li>{_text(f'{bad.source}:{bad.line}: {bad.reason}')}</li>"
        yield "</ul>"


def _causes(log: CheckedLog) -> Iterator[str]:
    yield "<h2>Causes</h2>"
    if not log.figures.causes:
        yield "<p>No turn breaks.</p>"
    for group in log.figures.causes:
        yield from _cause(log, group)


def _cause(log: CheckedLog, group: CauseGroup) -> Iterator[str]:
    turn, finding = group.worst, next(group.findings, None)
    yield f"<section><h3><code>{_text(group.cause)}</code></h3>"
    where = f"{turn_name(group.conversation_id, turn)}: {place_of(finding)}"
    yield f'<p>{_text(where)} <span class="soft">blame: {turn.blame}</span></p>'
    if finding is not None:
        yield f"<p>{_text(finding.detail)}</p>"
        yield _sides(finding)
    elif turn.token_finding is not None:
        yield f"<p>{_text(turn.token_finding.detail)}</p>"
    if group.lost_tokens:
        yield f"<p>Costs {_text(cost_line(log, group))}.</p>"
    fixes = group.fixes(log.report)
    if fixes:
        items = "".join(f"<li>{_text(fix_line(fix))}</li>" for fix in fixes)
        yield f"<p>What helps:</p><ul>{items}</ul>"
    yield "</section>"


def _sides(finding: Finding) -> str:
    sides = aligned_sides(finding.earlier_at, finding.later_at, width=_SIDE_CHARS)
    shared = escape(sides.shared)
    return (
        f"<pre>cached   {shared}<mark>{escape(sides.earlier)}</mark>\n"
        f"sent now {shared}<mark>{escape(sides.later)}</mark></pre>"
    )


def _conversations(log: CheckedLog) -> Iterator[str]:
    conversations = log.report.conversations
    yield "<h2>Conversations</h2>"
    yield f'<p class="soft">A dashed line stands at {percent(log.fail_under)} reuse.</p>'
    yield '<div class="scroll"><table><thead><tr><th scope="col">conversation</th>'
    yield '<th scope="col" class="number">turns</th><th scope="col" class="number">least</th>'
    yield '<th scope="col">reuse per turn</th><th scope="col">first cause</th></tr></thead><tbody>'
    for conversation in islice(conversations, MOST_CONVERSATIONS):
        yield _row(log, conversation)
    yield "</tbody></table></div>"
    if len(conversations) > MOST_CONVERSATIONS:
        yield f"<p>And {len(conversations) - MOST_CONVERSATIONS:,} more: see the JSON report.</p>"


def _row(log: CheckedLog, conversation: ConversationCheck) -> str:
    shares = [share for turn in conversation.turns if (share := share_of(turn)) is not None]
    name, least = conversation.conversation_id, worst_share(conversation)
    plot = reuse_plot(shares, name=visible(name), fail_under=log.fail_under) if shares else ""
    is_broken = conversation.verdict == "break"
    cause = f'<span class="broken">{_text(conversation.cause)}</span>' if is_broken else "none"
    return (
        f'<tr><th scope="row">{_text(name)}</th><td class="number">{len(conversation.turns)}</td>'
        f'<td class="number">{"" if least is None else percent(least)}</td>'
        f"<td>{plot}</td><td>{cause}</td></tr>"
    )
