"""`warmturn horizon`: how long idle blocks survive, from figures the server shows anyway."""

from typing import Annotated, Literal

import typer

from warmturn.cli.output import check_json_target, write_json

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
    think_median: Annotated[float, typer.Option(help="For --what-if: half come within, s.")] = 20,
    think_p90: Annotated[float, typer.Option(help="For --what-if: 90 percent within, s.")] = 120,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
) -> None:
    """Estimate the eviction horizon: (pool - running) / new tokens per second.

    JSON keys: docs/reference/horizon.md. Exit codes: 0 fine, 2 bad input.
    """
    check_json_target(json_file)
    from warmturn.cli.horizon_run import Question, run_horizon
    from warmturn.session.think_time import LogNormalThinkTime

    question = Question(
        sources=tuple(sources),
        kind=kind,
        interval_s=interval,
        duration_s=duration,
        pool_tokens=pool_tokens,
        pinned_tokens=running,
        host_tokens=host_tokens,
        what_if=tuple(what_if or ()),
        think_times=LogNormalThinkTime(think_median, think_p90),
    )
    write_json(run_horizon(question, is_shown=json_file != "-"), json_file)
