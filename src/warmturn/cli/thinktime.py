"""`warmturn thinktime`: how long users think, and how many of them come back too late."""

from typing import Annotated

import typer

from warmturn.cli.output import check_json_target, check_target, write_json, write_text

__all__ = ["thinktime"]


def thinktime(
    logs: Annotated[list[str], typer.Argument(help="Logs with times; - for standard input.")],
    *,
    format_name: Annotated[
        str | None, typer.Option("--format", help="Log format; found out where not given.")
    ] = None,
    horizon: Annotated[
        float | None, typer.Option(min=0, help="Seconds an idle block survives.")
    ] = None,
    prefill_rate: Annotated[
        float | None, typer.Option(min=1, help="Prefill tokens per second, for seconds lost.")
    ] = None,
    target: Annotated[float, typer.Option(help="Share of later turns that shall hit.")] = 0.9,
    rate: Annotated[
        float | None, typer.Option(min=0, help="New tokens per second, to size for the target.")
    ] = None,
    running: Annotated[float, typer.Option(min=0, help="Tokens of running requests.")] = 0,
    pool_tokens: Annotated[float, typer.Option(min=0, help="Tokens the pool holds now.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a line not read.")] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
    plot: Annotated[str | None, typer.Option(help="Write the curves as SVG here.")] = None,
) -> None:
    """Measure think time, from the end of an answer to the next request.

    JSON keys: docs/reference/horizon.md. Exit codes: 0 fine, 2 bad input.
    """
    check_json_target(json_file)
    check_target(plot, option="--plot")
    from warmturn.cli.histories import read_history
    from warmturn.cli.thinktime_run import Sizing, run_thinktime

    sizing = Sizing(target, rate, running, pool_tokens)
    history = read_history(logs, format_name=format_name, strict=strict)
    result, chart = run_thinktime(
        history,
        horizon_s=horizon,
        prefill_tokens_per_s=prefill_rate,
        sizing=sizing,
        is_shown=json_file != "-",
    )
    write_json(result, json_file)
    if plot is not None:
        write_text([chart], plot, option="--plot")
