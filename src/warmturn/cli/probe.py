"""`warmturn probe`: live measurements against an OpenAI-compatible server."""

from pathlib import Path
from typing import Annotated

import typer

from warmturn.cli.output import check_json_target, check_target, write_json, write_text
from warmturn.errors import MissingExtra

__all__ = ["app"]

app = typer.Typer(help="Measure a server from outside.", no_args_is_help=True)


@app.callback()
def _probe() -> None:
    pass  # keeps `horizon` a subcommand while it is the only one


@app.command()
def horizon(
    url: Annotated[str, typer.Argument(help="Base URL of the server.")],
    *,
    max_pause: Annotated[float, typer.Option(min=0.01, help="Longest pause, seconds.")] = 60,
    min_pause: Annotated[float, typer.Option(min=0.001, help="Shortest pause, seconds.")] = 1,
    budget: Annotated[
        int, typer.Option(min=8, max=1000, help="Most probes; two requests each.")
    ] = 24,
    pauses: Annotated[
        str | None, typer.Option(help="Plain form instead: these pauses, as 0,10,30.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, max=100, help="Plain form: of each pause.")] = 5,
    system: Annotated[Path | None, typer.Option(help="A system prompt, a text file.")] = None,
    words: Annotated[
        int, typer.Option(min=1, max=200_000, help="Words of a made-up one instead.")
    ] = 600,
    reply_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a reply.")] = 16,
    load: Annotated[
        str, typer.Option(help="Beside the probes: none, or poisson:RATE per second.")
    ] = "none",
    model: Annotated[str | None, typer.Option(help="Model name; default: the first.")] = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens per block.")] = 16,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a long run.")] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
    plot: Annotated[str | None, typer.Option(help="Write probes and belief as SVG here.")] = None,
) -> None:
    """Find the eviction horizon by conversations that pause. Sends real requests.

    JSON keys: docs/reference/horizon.md. Exit codes: 0 measured, 1 not measured, 2 bad input.
    """
    check_json_target(json_file)
    check_target(plot, option="--plot")
    try:
        import httpx as _httpx  # noqa: F401 - named before any work where it is missing

        from warmturn.cli.probe_run import ProbeQuestion, run_plain, run_probe
    except ModuleNotFoundError as error:
        raise MissingExtra(f"probing ({error.name} is not installed)", extra="probe") from error

    question = ProbeQuestion(
        url=url,
        model=model,
        max_pause_s=max_pause,
        min_pause_s=min_pause,
        budget=budget,
        system=system,
        num_words=words,
        reply_tokens=reply_tokens,
        load=load,
        block_size=block_size,
        is_agreed=yes,
    )
    is_shown = json_file != "-"
    if pauses is not None:
        write_json(run_plain(question, pauses, trials, is_shown=is_shown), json_file)
        return
    result, chart, is_measured = run_probe(question, is_shown=is_shown)
    write_json(result, json_file)
    if plot is not None:
        write_text([chart], plot, option="--plot")
    raise typer.Exit(0 if is_measured else 1)
