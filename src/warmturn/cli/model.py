"""`warmturn model`: the weights the embedded engine runs on."""

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from warmturn.cli.output import write_json
from warmturn.errors import MissingExtra

__all__ = ["app"]

DEFAULT_MODEL = "smollm2-135m-instruct"

app = typer.Typer(help="Fetch and convert models.", no_args_is_help=True)


@app.callback()
def _model() -> None:
    pass  # keeps `fetch` a subcommand while it is the only one


@app.command()
def fetch(
    model: Annotated[
        str, typer.Argument(help="A GGUF file, a hub id, or the default.")
    ] = DEFAULT_MODEL,
    *,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for stdout.")
    ] = None,
) -> None:
    """Fetch a model into the cache and print its directory; at once if it is there.

    JSON keys: model, directory, num_bytes.
    """
    try:
        from warmturn.engine.fetch import resolve_model
    except ModuleNotFoundError as error:
        what = f"fetching models ({error.name} is not installed)"
        raise MissingExtra(what, extra="engine") from error

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    console = Console(stderr=True)
    # Without a terminal even an empty bar prints a line.
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with shown as bar:
        task = bar.add_task(model, total=None, start=False)

        def progress(done: int, total: int | None) -> None:
            bar.start_task(task)
            bar.update(task, completed=done, total=total)

        directory = resolve_model(model, progress=progress)
    num_bytes = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    write_json({"model": model, "directory": str(directory), "num_bytes": num_bytes}, json_file)
    if json_file != "-":
        typer.echo(directory)
