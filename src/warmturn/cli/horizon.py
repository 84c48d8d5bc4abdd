"""`warmturn horizon`: how long idle blocks survive, from figures the server shows anyway."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from warmturn.cli.output import check_json_target, write_json
from warmturn.errors import InvalidInput

if TYPE_CHECKING:
    from warmturn.session.think_time import ThinkTimes

__all__ = ["horizon"]

Kind = Literal["auto", "metrics", "log"]


def horizon(
    sources: Annotated[
        list[str], typer.Argument(help="A server's URL, saved /metrics pages, or request logs.")
    ],
    *,
    kind: Annotated[Kind, typer.Option(help="What the files are; found out by default.")] = "auto",
    interval: Annotated[
        float | None, typer.Option(help="Seconds between pages; default: 5, files by their times.")
    ] = None,
    duration: Annotated[float, typer.Option(help="Seconds to poll a URL for.")] = 60,
    pool_tokens: Annotated[
        float | None, typer.Option(min=1, help="Tokens of the pool, where not said.")
    ] = None,
    running: Annotated[
        float | None, typer.Option(min=0, help="Tokens that running requests hold, where not said.")
    ] = None,
    host_tokens: Annotated[
        float | None, typer.Option(min=1, help="Tokens of the tier below, for its horizon.")
    ] = None,
    what_if: Annotated[
        list[float] | None, typer.Option(help="Tokens of a pool to try instead; several times.")
    ] = None,
    think_median: Annotated[
        float | None, typer.Option(help="Half of the later turns come within, s.")
    ] = None,
    think_p90: Annotated[float | None, typer.Option(help="90 percent come within, s.")] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
) -> None:
    """Estimate the eviction horizon from the pool and what enters it per second.

    JSON keys: docs/reference/horizon.md. Exit codes: 0 fine, 2 bad input.
    """
    check_json_target(json_file)
    from warmturn.cli.horizon_run import Question, run_horizon

    question = Question(
        sources=tuple(sources),
        kind=kind,
        interval_s=interval,
        duration_s=duration,
        pool_tokens=pool_tokens,
        pinned_tokens=running,
        host_tokens=host_tokens,
        what_if=tuple(what_if or ()),
        think_times=_think_times(think_median, think_p90),
    )
    write_json(run_horizon(question, is_shown=json_file != "-"), json_file)


def _think_times(median_s: float | None, p90_s: float | None) -> "ThinkTimes | None":
    from warmturn.session.think_time import LogNormalThinkTime

    if median_s is None and p90_s is None:
        return None
    if median_s is None or p90_s is None:
        raise InvalidInput("--think-median and --think-p90 go together; give both")
    return LogNormalThinkTime(median_s, p90_s)
