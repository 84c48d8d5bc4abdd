"""A checked log on a terminal: a line per conversation, the worst breaks, a summary."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from warmturn.check import ConversationCheck, Finding, TurnCheck
from warmturn.report.checked_log import CauseGroup, CheckedLog
from warmturn.report.sides import aligned_sides, visible
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

__all__ = ["print_check"]

MOST_CAUSES = 8
_MOST_FIXES = 3
_LABEL_CHARS = 9
_LEAST_SIDE_CHARS = 24


def print_check(log: CheckedLog, console: Console) -> None:
    """Print `log`. Of many conversations and causes the worst; JSON and the page have all."""
    _say(console, log.rendered_with, style="dim")
    _print_bad_lines(log, console)
    if log.report.conversations:
        console.print()
        console.print(_conversation_table(log))
    for number, group in enumerate(log.figures.causes[:MOST_CAUSES], 1):
        console.print()
        _print_cause(log, number, group, console)
    if len(log.figures.causes) > MOST_CAUSES:
        _say(
            console,
            f"\nand {len(log.figures.causes) - MOST_CAUSES} more causes: see --json or --html",
        )
    console.print()
    _say(console, summary_line(log), style="bold")


def _print_bad_lines(log: CheckedLog, console: Console) -> None:
    for bad in log.bad_lines:
        _say(console, f"{bad.source}:{bad.line}: not read: {visible(bad.reason)}", style="yellow")
    rest = log.num_bad_lines - len(log.bad_lines)
    if rest > 0:
        _say(console, f"and {rest:,} more lines that could not be read", style="yellow")
    figures = log.figures
    if figures.num_not_rendered:
        why = visible(figures.refusal)
        note = f"{figures.num_not_rendered:,} requests not judged; the first: {why}"
        _say(console, note, style="yellow")


def _conversation_table(log: CheckedLog) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("conversation", no_wrap=True, max_width=32)
    table.add_column("turns", justify="right")
    table.add_column("breaks", justify="right")
    table.add_column("least reuse", justify="right")
    table.add_column("by turn", no_wrap=True)
    table.add_column("first cause", overflow="fold")
    for conversation in log.figures.worst:
        table.add_row(*_conversation_cells(conversation))
    num_more = len(log.report.conversations) - len(log.figures.worst)
    if num_more > 0:
        table.add_row(Text(f"and {num_more:,} more", style="dim"))
    return table


def _conversation_cells(conversation: ConversationCheck) -> Iterator[Text]:
    least = worst_share(conversation)
    breaks = sum(turn.verdict == "break" for turn in conversation.turns)
    is_broken = conversation.verdict == "break"
    yield Text(visible(conversation.conversation_id), overflow="ellipsis")
    yield Text(f"{len(conversation.turns):,}")
    yield Text(f"{breaks:,}", style="red" if breaks else "")
    yield Text("" if least is None else percent(least))
    yield Text(spark_line(conversation))
    yield Text(conversation.cause if is_broken else "", style="red" if is_broken else "")


def _print_cause(log: CheckedLog, number: int, group: CauseGroup, console: Console) -> None:
    turn, finding = group.worst, next(group.findings, None)
    console.print(
        Text.assemble(
            (f"{number}  {group.cause}", "bold red" if turn.is_failure else "bold"),
            (f"   blame: {turn.blame}", ""),
            (f"   level: {turn.level}" if turn.level else "", ""),
        )
    )
    _say(console, f"   {turn_name(group.conversation_id, turn)}: {place_of(finding)}")
    if finding is not None:
        _say(console, f"   {visible(finding.detail)}")
        _print_sides(finding, console)
    elif turn.token_finding is not None:
        _say(console, f"   {visible(turn.token_finding.detail)}")
    for note in turn.notes:
        _say(console, f"   {visible(note)}")
    _print_row(console, "behind it", ", ".join(dict.fromkeys(turn.causes[1:])))
    _print_row(console, "costs", cost_line(log, group) if group.lost_tokens else "")
    _print_row(console, "evidence", _evidence(turn))
    for fix in group.fixes(log.report)[:_MOST_FIXES]:
        _print_row(console, "fix", fix_line(fix), style="green")
    if turn.is_planned:
        _print_row(console, "planned", "rare enough to be meant: it does not fail")


def _print_sides(finding: Finding, console: Console) -> None:
    width = max(_LEAST_SIDE_CHARS, min(console.width, 120) - 3 - _LABEL_CHARS)
    sides = aligned_sides(finding.earlier_at, finding.later_at, width=width)
    for label, rest in (("cached", sides.earlier), ("sent now", sides.later)):
        line = Text.assemble((f"   {label:{_LABEL_CHARS}}", "dim"), sides.shared, (rest, "reverse"))
        console.print(line, no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)
    console.print(
        Text(f"{'':{3 + _LABEL_CHARS + len(sides.shared)}}^", style="dim"), soft_wrap=True
    )


def _evidence(turn: TurnCheck) -> str:
    """Say how sure it is what lay in the cache."""
    if turn.evidence == "message" and turn.level in {"echo", "text", "tokens"}:
        return "the generated text is put together from the logged message; ids would prove it"
    return ""


def _print_row(console: Console, label: str, text: str, *, style: str = "") -> None:
    if text:
        _say(console, f"   {label:{_LABEL_CHARS}}{text}", style=style)


def _say(console: Console, text: str, *, style: str = "") -> None:
    """Print foreign text as it is: no markup, no highlighting, no hard line breaks."""
    console.print(Text(text, style=style), soft_wrap=True)
