"""Think time behind the options: report, terminal, JSON and chart put together."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from warmturn.horizon import ThinkGroup, ThinkReport, TierNeed, think_report, tier_need
from warmturn.report.chart import Axis, Line, Marker, line_chart
from warmturn.report.figures import seconds_text
from warmturn.report.horizon_terminal import bracket_text, print_rows
from warmturn.report.plan_json import finite
from warmturn.session.survival import HorizonBelief
from warmturn.session.turn_history import HistoryTurn, gaps

__all__ = ["Sizing", "run_thinktime"]

_SHARES = (0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Sizing:
    """What a pool for the target share is sized from."""

    target_share: float
    new_tokens_per_s: float | None
    pinned_tokens: float
    pool_tokens: float


def run_thinktime(
    history: Sequence[HistoryTurn],
    *,
    horizon_s: float | None,
    prefill_tokens_per_s: float | None,
    sizing: Sizing,
    is_shown: bool,
) -> tuple[dict[str, Any], str]:
    """Print the report if it is to be shown, and return it as JSON and its chart as SVG."""
    report = think_report(
        gaps(history), horizon_s=horizon_s, prefill_tokens_per_s=prefill_tokens_per_s
    )
    need = _need(report, sizing)
    if is_shown:
        _print(report, need, Console(highlight=False))
    result: dict[str, Any] = finite(
        {
            "sessions": report.num_sessions,
            "answers": report.overall.curve.num_returned + report.overall.curve.num_open,
            "from_starts": report.num_from_starts,
            "tokens_per_turn": report.tokens_per_turn,
            "overall": _group_json(report.overall),
            "by_turn": [_group_json(group) for group in report.by_turn],
            "by_stop": [_group_json(group) for group in report.by_stop],
            "observed_horizon": None
            if report.bracket is None
            else {"lower_s": report.bracket.lower_s, "upper_s": report.bracket.upper_s},
            "need": None if need is None else asdict(need),
            "curve": {
                "seconds": report.overall.curve.times_s,
                "returned_share": report.overall.curve.shares,
            },
        }
    )
    return result, _chart(report, horizon_s)


def _need(report: ThinkReport, sizing: Sizing) -> TierNeed | None:
    if sizing.new_tokens_per_s is None:
        return None
    return tier_need(
        report.overall.curve,
        target_share=sizing.target_share,
        pool_tokens=sizing.pool_tokens,
        pinned_tokens=sizing.pinned_tokens,
        new_tokens_per_s=sizing.new_tokens_per_s,
    )


def _group_json(group: ThinkGroup) -> dict[str, Any]:
    curve = group.curve
    quantiles = {f"p{round(share * 100)}_s": curve.seconds_for(share) for share in _SHARES}
    return {
        "name": group.name,
        "returned": curve.num_returned,
        "open": curve.num_open,
        "return_share": curve.return_share,
        **quantiles,
        "exposure": None
        if group.exposed is None
        else {**asdict(group.exposed), "miss_share": group.exposed.miss_share},
    }


def _print(report: ThinkReport, need: TierNeed | None, console: Console) -> None:
    curve = report.overall.curve
    console.print(
        Text(
            f"{curve.num_returned + curve.num_open:,} answers in {report.num_sessions:,} "
            f"conversations: {curve.return_share:.0%} are followed by another turn"
        ),
        soft_wrap=True,
    )
    console.print()
    console.print(_table(report))
    console.print()
    print_rows(console, _rows(report, need))
    if report.num_from_starts:
        console.print(
            Text(
                f"note: {report.num_from_starts:,} times are from start to start, since the log "
                "has no end of the answer (end_time): think time is shorter by the answer",
                style="yellow",
            ),
            soft_wrap=True,
        )


def _table(report: ThinkReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("after", "answers", "return", *(f"{round(s * 100)} %" for s in _SHARES), "miss"):
        table.add_column(name, justify="left" if name == "after" else "right")
    named = [(f"turn {group.name}", group) for group in report.by_turn]
    named += [(group.name, group) for group in report.by_stop]
    for name, group in [("all", report.overall), *named]:
        table.add_row(name, *_cells(group))
    return table


def _cells(group: ThinkGroup) -> Iterator[str]:
    curve = group.curve
    yield f"{curve.num_returned + curve.num_open:,}"
    yield f"{curve.return_share:.0%}"
    for share in _SHARES:
        yield seconds_text(curve.seconds_for(share)) if curve.num_returned else "-"
    known = group.exposed is not None and curve.num_returned
    yield f"{group.exposed.miss_share:.0%}" if known and group.exposed else "-"


def _rows(report: ThinkReport, need: TierNeed | None) -> Iterator[tuple[str, str]]:
    exposed = report.overall.exposed
    if exposed is not None:
        lost = f"{exposed.miss_share:.1%} of later turns come too late"
        if report.tokens_per_turn:
            lost += f": {exposed.lost_tokens_per_turn:,.0f} tokens per later turn"
        if exposed.lost_s_per_turn is not None and report.tokens_per_turn:
            lost += f", {exposed.lost_s_per_turn:,.2f} s of prefill"
        yield f"horizon {seconds_text(exposed.horizon_s)}", lost
    if report.bracket is not None:
        yield "hits and misses logged", f"horizon {bracket_text(report.bracket)}"
    if need is not None:
        yield (
            f"for {need.target_share:.0%} in time",
            (
                f"{seconds_text(need.horizon_s)}: {need.total_tokens:,.0f} tokens in all, "
                f"{need.tier_tokens:,.0f} more than the pool"
            ),
        )


def _chart(report: ThinkReport, horizon_s: float | None) -> str:
    curve = report.overall.curve
    share = curve.return_share
    points = [(t, s / share) for t, s in zip(curve.times_s, curve.shares, strict=True)]
    low = max(0.1, min(points[0][0], horizon_s or points[0][0]))
    high = max(points[-1][0], (horizon_s or 0) * 3, low * 10)
    lines = [Line("turns back by then", [(low, 0.0), *points], is_step=True)]
    markers = []
    if horizon_s:
        belief = HorizonBelief(horizon_s)
        steps = [low * (high / low) ** (k / 200) for k in range(201)]
        lines.append(Line("blocks still there", [(s, belief.survival(s)) for s in steps]))
        markers.append(Marker(f"horizon {seconds_text(horizon_s)}", horizon_s))
    return line_chart(
        "Think time against the horizon",
        Axis("seconds since the answer", low, high, is_log=True),
        Axis("share", 0, 1),
        lines,
        markers,
    )
