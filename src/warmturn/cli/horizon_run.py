"""The horizon behind the options: pages or logs in, the estimate out."""

import itertools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from warmturn.cli.histories import read_history
from warmturn.errors import InvalidInput, MissingExtra
from warmturn.horizon import (
    HorizonEstimate,
    SteadyState,
    TimedPage,
    estimate_from_log,
    estimate_horizon,
    fit_load,
    read_metrics_page,
    steady_state,
)
from warmturn.report.horizon_terminal import print_horizon, print_log_horizon
from warmturn.report.plan_json import finite
from warmturn.session.think_time import ThinkTimes
from warmturn.session.turn_history import gaps

__all__ = ["Question", "run_horizon"]

DEFAULT_INTERVAL_S = 5.0
_MOST_PAGE_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Question:
    """All that was asked."""

    sources: tuple[str, ...]
    kind: str
    interval_s: float | None
    duration_s: float
    pool_tokens: float | None
    pinned_tokens: float | None
    host_tokens: float | None
    what_if: tuple[float, ...]
    think_times: ThinkTimes | None


def run_horizon(question: Question, *, is_shown: bool) -> dict[str, Any]:
    """Print the estimate if it is to be shown, and return it as JSON."""
    console = Console(highlight=False)
    urls = [source for source in question.sources if "://" in source]
    if not urls and _is_log(question):
        return _from_log(question, console, is_shown=is_shown)
    if urls and len(question.sources) > 1:
        raise InvalidInput("a URL is polled by itself; leave the other sources out")
    pages = _polled(urls[0], question) if urls else _saved(question)
    found = estimate_horizon(
        pages,
        pool_tokens=question.pool_tokens,
        pinned_tokens=question.pinned_tokens,
        host_tokens=question.host_tokens,
        think_times=question.think_times,
    )
    states = _what_if(question, found)
    if is_shown:
        print_horizon(found, states, console)
    answers = [{"pool_tokens": pool, **asdict(state)} for pool, state in states]
    result = asdict(found) | {"new_tokens_per_s": found.new_tokens_per_s, "what_if": answers}
    answer: dict[str, Any] = finite(result)
    return answer


def _what_if(question: Question, found: HorizonEstimate) -> list[tuple[float, SteadyState]]:
    if not question.what_if:
        return []
    think_times = question.think_times
    if think_times is None:
        raise InvalidInput(
            "--what-if needs to know how long users think; give --think-median and --think-p90 "
            "(warmturn thinktime measures them)"
        )
    if found.hit_tokens_per_s is None:
        raise InvalidInput(
            "the engine does not count hits, so what later turns would reuse is not known; "
            "--what-if needs it"
        )
    load = fit_load(
        horizon_s=found.horizon_s,
        miss_tokens_per_s=found.miss_tokens_per_s,
        generated_tokens_per_s=found.generated_tokens_per_s,
        hit_tokens_per_s=found.hit_tokens_per_s,
        think_times=think_times,
    )
    return [
        (pool, steady_state(load, idle_tokens=max(0.0, pool - found.pinned_tokens)))
        for pool in question.what_if
    ]


def _from_log(question: Question, console: Console, *, is_shown: bool) -> dict[str, Any]:
    history = read_history(question.sources)
    found = estimate_from_log(
        history,
        gaps(history),
        pool_tokens=question.pool_tokens,
        pinned_tokens=question.pinned_tokens,
    )
    if is_shown:
        print_log_horizon(found, console)
    bracket = found.bracket
    answer: dict[str, Any] = finite(
        asdict(found)
        | {
            "new_tokens_per_s": found.new_tokens_per_s,
            "bracket": None
            if bracket is None
            else {"lower_s": bracket.lower_s, "upper_s": bracket.upper_s},
        }
    )
    return answer


def _polled(url: str, question: Question) -> list[TimedPage]:
    try:
        from warmturn.probe.client import Client
        from warmturn.probe.metrics_poll import metrics_base, poll_metrics
    except ModuleNotFoundError as error:
        raise MissingExtra(f"polling ({error.name} is not installed)", extra="probe") from error
    console = Console(stderr=True)
    shown = Progress(console=console, transient=True, disable=not console.is_terminal)
    with Client(metrics_base(url), timeout_s=30) as client, shown as bar:
        task = bar.add_task("reading /metrics")
        return poll_metrics(
            client,
            interval_s=question.interval_s or DEFAULT_INTERVAL_S,
            duration_s=question.duration_s,
            on_page=lambda done, total: bar.update(task, completed=done, total=total),
        )


def _saved(question: Question) -> list[TimedPage]:
    """Read saved pages; their times are those of the files unless an interval is given."""
    if len(question.sources) < 2:
        raise InvalidInput(
            f"{question.sources[0]} is one page, and a rate needs two; save a second one later, or "
            "give the server's URL"
        )
    pages = []
    for number, source in enumerate(question.sources):
        path = Path(source)
        page = read_metrics_page(_read_text(path))
        written_s = path.stat().st_mtime
        time_s = written_s if question.interval_s is None else number * question.interval_s
        pages.append(TimedPage(time_s, page))
    if any(b.time_s <= a.time_s for a, b in itertools.pairwise(pages)):
        raise InvalidInput(
            "the pages' files are not in order of time; give them oldest first, or say how far "
            "apart they were read (--interval)"
        )
    return pages


def _is_log(question: Question) -> bool:
    if question.kind != "auto":
        return question.kind == "log"
    first = Path(question.sources[0])
    if question.sources[0] == "-":
        return True
    try:
        head = _read_text(first)
        return read_metrics_page(head).name is None
    except InvalidInput:
        if not first.is_file():
            raise
        return True


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_PAGE_BYTES).decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"cannot read {path}: {reason}; check the path") from error
