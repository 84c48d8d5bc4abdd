"""The horizon probe behind the options: text, load, campaign, terminal, JSON, chart."""

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from warmturn.errors import InvalidInput
from warmturn.horizon import Campaign, CampaignResult
from warmturn.report.chart import Axis, Line, Marker, line_chart
from warmturn.report.figures import seconds_text
from warmturn.report.horizon_terminal import print_rows
from warmturn.report.plan_json import finite

if TYPE_CHECKING:
    from warmturn.probe.background_load import LoadTally
    from warmturn.probe.horizon_probe import ProbeReport
    from warmturn.probe.plain_probe import PlainRow
    from warmturn.probe.probe_turns import ProbeText

__all__ = ["ProbeQuestion", "run_plain", "run_probe"]

_LONG_S = 900.0
"""A run that may take longer has to be agreed to."""


@dataclass(frozen=True, slots=True)
class ProbeQuestion:
    """All that was asked."""

    url: str
    model: str | None
    max_pause_s: float
    min_pause_s: float
    budget: int
    system: Path | None
    num_words: int
    reply_tokens: int
    load: str
    block_size: int
    is_agreed: bool

    @property
    def base_url(self) -> str:
        """Without `/v1`."""
        from warmturn.probe.metrics_poll import metrics_base

        return metrics_base(self.url)


def run_probe(question: ProbeQuestion, *, is_shown: bool) -> tuple[dict[str, Any], str, bool]:
    """Run the campaign; return JSON, chart, and whether a horizon was measured."""
    from warmturn.probe.horizon_probe import HorizonProbe

    campaign = Campaign(
        max_pause_s=question.max_pause_s,
        min_pause_s=min(question.min_pause_s, question.max_pause_s / 2),
        budget=question.budget,
    )
    _agree(campaign.most_seconds, question)
    text, model = _text(question), _model(question)
    notes = Console(stderr=True, highlight=False)
    cost = f"at most {question.budget + 8} conversations of two turns and {seconds_text(campaign.most_seconds)}"
    notes.print(Text(cost, style="dim"))

    def on_step(what: str, known: CampaignResult) -> None:
        so_far = "" if not known.num_probes else f"; so far {_belief(known)}"
        notes.print(Text(f"{what}{so_far}", style="dim"))

    probe = HorizonProbe(
        question.base_url,
        model=model,
        text=text,
        campaign=campaign,
        block_size=question.block_size,
        on_step=on_step,
    )
    with _load(question, model) as tally:
        report = probe.run()
    if is_shown:
        _print(report, tally, Console(highlight=False))
    return _json(report, tally), _chart(campaign, report), report.result.outcome == "measured"


def run_plain(
    question: ProbeQuestion, pauses: str, trials: int, *, is_shown: bool
) -> dict[str, Any]:
    """Run the plain form: each pause so many times, one line each."""
    from warmturn.probe.plain_probe import parse_pauses, plain_probe

    wanted = parse_pauses(pauses)
    _agree(sum(wanted), question)
    text, model = _text(question), _model(question)
    console = Console(highlight=False)

    def show(row: "PlainRow") -> None:
        if is_shown:
            console.print(Text(row.line), soft_wrap=True)

    with _load(question, model) as tally:
        found = plain_probe(question.base_url, wanted, trials, model=model, text=text, on_row=show)
    if is_shown:
        floor, full = (median(times) * 1e3 for times in (found.floor_s, found.full_s))
        console.print(
            Text(f"cached floor {floor:,.0f} ms, full prefill {full:,.0f} ms"), soft_wrap=True
        )
    return {"rows": [asdict(row) for row in found.rows], "load": tally.figures} | {
        "floor_s": median(found.floor_s),
        "full_s": median(found.full_s),
    }


def _agree(most_seconds: float, question: ProbeQuestion) -> None:
    if most_seconds > _LONG_S and not question.is_agreed:
        raise InvalidInput(
            f"this may take {seconds_text(most_seconds)}; say --yes, or shorten --max-pause or --budget"
        )


def _text(question: ProbeQuestion) -> "ProbeText":
    from warmturn.probe.probe_turns import ProbeText

    if question.system is None:
        return ProbeText.of_words(question.num_words, reply_tokens=question.reply_tokens)
    try:
        words = question.system.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"--system {question.system}: cannot be read as text ({error})"
        ) from error
    return ProbeText(words, reply_tokens=question.reply_tokens)


def _model(question: ProbeQuestion) -> str:
    from warmturn.probe.client import Client

    if question.model is not None:
        return question.model
    with Client(question.base_url, timeout_s=30) as client:
        return client.model_name()


def _load(question: ProbeQuestion, model: str) -> Any:
    from warmturn.probe.background_load import LoadTally, read_load, running_load

    spec = read_load(question.load)
    if spec is None:
        return nullcontext(LoadTally())
    return running_load(question.base_url, model, spec)


def _belief(known: CampaignResult) -> str:
    interval = known.interval
    return (
        f"{seconds_text(known.median_s)} (95 %: {seconds_text(interval.low_s)} to "
        f"{seconds_text(interval.high_s)})"
    )


def _headline(result: CampaignResult) -> str:
    match result.outcome:
        case "measured":
            return f"horizon {_belief(result)}"
        case "beyond":
            return f"horizon above {seconds_text(result.interval.low_s)}: no pause was long enough"
        case "below":
            return (
                f"horizon below {seconds_text(result.interval.high_s)}: no pause was short enough"
            )
        case "routing":
            share = result.at_once_hit_share or 0.0
            return (
                f"not eviction: only {share:.0%} hit without any pause. Prefix caching is off, or "
                "turns go to other replicas"
            )
        case "no-evidence":
            return "nothing was learned: no probe told a hit from a miss"


def _print(report: "ProbeReport", tally: "LoadTally", console: Console) -> None:
    console.print(Text(_headline(report.result), style="bold"), soft_wrap=True)
    rows = []
    by = "cached tokens" if report.has_cached_tokens else "time to first token"
    verdicts = [sample.verdict for sample in report.samples]
    counts = ", ".join(
        f"{verdicts.count(verdict):,} {verdict}" for verdict in dict.fromkeys(sorted(verdicts))
    )
    rows.append(("probes", f"{len(verdicts)} by {by}: {counts}"))
    if report.calibration is not None:
        model = report.calibration
        rows.append(
            (
                "time to first token",
                f"{model.hit_s * 1e3:,.0f} ms cached, {model.miss_s * 1e3:,.0f} ms computed",
            )
        )
    if tally.figures:
        figures = tally.figures
        rate = figures["sent"] / max(figures["seconds"], 1e-9)
        rows.append(
            (
                "background load",
                (
                    f"{rate:,.2f} requests per second sent, {figures['failed']:,} failed, "
                    f"{figures['dropped']:,} dropped; worst lag {figures['worst_lag_s'] * 1e3:,.0f} ms"
                ),
            )
        )
    print_rows(console, iter(rows))
    for failure in dict.fromkeys(report.failures):
        console.print(Text(f"note: a probe failed: {failure}", style="yellow"), soft_wrap=True)


def _json(report: "ProbeReport", tally: "LoadTally") -> dict[str, Any]:
    answer: dict[str, Any] = finite(
        {
            **asdict(report.result),
            "calibration": None if report.calibration is None else asdict(report.calibration),
            "has_cached_tokens": report.has_cached_tokens,
            "samples": [asdict(sample) for sample in report.samples],
            "failures": report.failures,
            "load": tally.figures,
        }
    )
    return answer


def _chart(campaign: Campaign, report: "ProbeReport") -> str:
    low = min([sample.pause_s for sample in report.samples] or [1.0]) / 2
    high = campaign.posterior.max_pause_s * 1.5
    shares = [k / 200 for k in range(1, 200)]
    belief = list(zip(campaign.posterior.quantiles_s(shares), shares, strict=True))
    survival = [(seconds, 1 - share) for seconds, share in belief]
    hits = sorted(
        (s.pause_s, float(s.verdict in {"hit", "slow hit"}))
        for s in report.samples
        if s.verdict in {"hit", "slow hit", "miss"}
    )
    lines = [Line("chance that the horizon is longer", survival)]
    if hits:
        lines.append(Line("probes: hit or miss", hits, is_step=True))
    return line_chart(
        "Turn-2 probe",
        Axis("pause, seconds", max(low, 1e-3), high, is_log=True),
        Axis("share", 0, 1),
        lines,
        [Marker(f"median {seconds_text(report.result.median_s)}", report.result.median_s)],
    )
