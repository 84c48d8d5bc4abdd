"""Figures and sentences that the terminal and the page share."""

from warmturn.check import ConversationCheck, Finding, Fix, TurnCheck
from warmturn.report.checked_log import CauseGroup, CheckedLog, share_of
from warmturn.report.sides import visible

__all__ = [
    "cost_line",
    "fix_line",
    "percent",
    "place_of",
    "spark_line",
    "summary_line",
    "worst_share",
]

_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 24


def percent(share: float) -> str:
    """Return a share as whole percent, rounded down: only all is 100 %."""
    return f"{int(share * 100 + 1e-9)} %"


def worst_share(conversation: ConversationCheck) -> float | None:
    """Return the least share of cached content that a turn reuses; None with one turn."""
    shares = [share for turn in conversation.turns if (share := share_of(turn)) is not None]
    return min(shares, default=None)


def spark_line(conversation: ConversationCheck) -> str:
    """Return one bar per turn that continues another: the share it reuses. The newest, if many."""
    shares = [share for turn in conversation.turns if (share := share_of(turn)) is not None]
    bars = "".join(_BARS[min(7, int(share * 7.999))] for share in shares[-_MOST_BARS:])
    return f"…{bars}" if len(shares) > _MOST_BARS else bars


def place_of(finding: Finding | None) -> str:
    """Return where in the request the break is."""
    if finding is None:
        return "in the prompt's tokens"
    if finding.message_index is not None:
        return f"in messages[{finding.message_index}]"
    return "in the tools" if ".tool" in finding.cause else f"at character {finding.shared_chars:,}"


def cost_line(log: CheckedLog, group: CauseGroup) -> str:
    """Return what a cause costs: tokens, blocks and seconds, of its worst turn and in all."""
    worst, total = group.worst_lost_tokens, group.lost_tokens
    about = "" if log.figures.has_tokens else "about "
    parts = [f"{about}{worst:,} cached tokens computed again in this turn"]
    if log.figures.has_tokens and log.engine != "exact-end":
        parts[0] += f" ({worst // log.block_tokens:,} blocks of {log.block_tokens})"
    if group.num_turns > 1:
        parts.append(f"{about}{total:,} in {group.num_turns} turns")
    seconds = log.lost_s(total)
    if seconds is not None:
        parts.append(f"{seconds:,.2f} s of prefill")
    return ", ".join(parts)


def fix_line(fix: Fix) -> str:
    """Return the change with its proof, and its price where it has one."""
    line = f"{visible(fix.change)}: {_proof(fix)}"
    if fix.extra_context_tokens:
        line += f"; {fix.extra_context_tokens:+,} tokens of context in that turn"
    if fix.full_context_turn is not None:
        line += f"; the context is full at turn {fix.full_context_turn}"
    return line


def _proof(fix: Fix) -> str:
    if fix.window is not None:
        window = fix.window
        return (
            f"{percent(window.append_share_now)} → {percent(window.append_share)} of turns only "
            f"append ({window.num_turns} turns rendered)"
        )
    shares = f"reuse {percent(fix.share_before)} → {percent(fix.share_after)}"
    return f"{shares}, proven by rendering" if fix.is_proven else f"{shares}, not proven"


def summary_line(log: CheckedLog) -> str:
    """Return the last line: how many turns were checked, failed, and what they lost."""
    report = log.report
    figures = log.figures
    lost = figures.lost_tokens
    conversations = _plural(len(report.conversations), "conversation")
    line = (
        f"{_plural(report.num_requests, 'request')} in {conversations}: "
        f"{_plural(figures.num_later_turns, 'later turn')}, {report.num_breaks} broken, "
        f"{figures.num_new_failures} under {percent(log.fail_under)} reuse"
    )
    if log.num_known:
        line += f" and {log.num_known} more that the baseline knows"
    if figures.has_tokens and report.cached_tokens:
        return f"{line}; {lost:,} of {report.cached_tokens:,} cached tokens computed again"
    return f"{line}; about {lost:,} tokens computed again" if lost else line


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def turn_name(conversation_id: str, turn: TurnCheck) -> str:
    """Return conversation, turn and where the request stands."""
    place = f"{turn.source}:{turn.line}"  # stands for an id where the log has none
    where = place if turn.request_id == place else f"request {turn.request_id}, {place}"
    return visible(f"{conversation_id}, turn {turn.turn + 1} ({where})")
