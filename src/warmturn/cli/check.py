"""`warmturn check`: which turns rewrite what is cached, why, what it costs, and what helps."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from warmturn.cli.output import check_target
from warmturn.errors import InvalidInput

__all__ = ["check"]

EngineName = Literal["paged", "block-quantised", "exact-end"]
"""As `warmturn.check.engines` has them, which `--help` does not load."""


def check(
    files: Annotated[
        list[str] | None, typer.Argument(help="Logs of requests; - for standard input.")
    ] = None,
    *,
    model: Annotated[
        Path | None, typer.Option(help="Hugging Face model directory: template and tokenizer.")
    ] = None,
    template: Annotated[Path | None, typer.Option(help="A chat template, a .jinja file.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json, or a directory that has one.")
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", help="Log format; found out where not given.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a line not read.")] = False,
    engine: Annotated[
        EngineName, typer.Option(help="What the engine can resume from; costs depend on it.")
    ] = "paged",
    block_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens the engine reuses at once. Default: 16, or 512 quantised."
        ),
    ] = None,
    fail_under: Annotated[
        float, typer.Option(min=0, max=1, help="A turn fails that reuses less than this share.")
    ] = 0.9,
    prefill_rate: Annotated[
        float | None, typer.Option(min=1, help="Measured prefill tokens per second, for seconds.")
    ] = None,
    limit_context: Annotated[
        int | None, typer.Option(min=1, help="Tokens the model takes; fixes name the full turn.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="A former --json report: only new failures fail.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes; default: one, or the cores for a large log with ids."),
    ] = None,
    template_only: Annotated[
        Path | None, typer.Option(help="Check a template, or a folder of them, without a log.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="Base URL: compare its rendering, replay a conversation.")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for standard output.")
    ] = None,
    html: Annotated[str | None, typer.Option(help="Write one self-contained page here.")] = None,
    junit: Annotated[str | None, typer.Option(help="Write JUnit XML for CI here.")] = None,
) -> None:
    """Check that each turn of each logged conversation only appends to what is cached.

    Names the cause of each break, its place, its cost, and changes proven by rendering.
    JSON keys: docs/reference/check.md. Exit codes: 0 clean, 1 a turn fails, 2 bad input.
    """
    from warmturn.cli.check_files import Outputs, check_files
    from warmturn.cli.check_inputs import LogSource, load_rendering, settings_of

    for option, target in (("--json", json_file), ("--html", html), ("--junit", junit)):
        check_target(target, option=option)
    outputs = Outputs(json_file, html, junit)
    if template_only is not None:
        from warmturn.cli.check_templates import check_templates

        _refuse_more(template_only, files, server)
        raise typer.Exit(check_templates(template_only, outputs))
    settings = settings_of(engine, block_size, fail_under, prefill_rate, limit_context)
    rendering = load_rendering(model, template, tokenizer)
    source = LogSource(paths=tuple(files or ()), format_name=format_name, is_strict=strict)
    if server is not None:
        from warmturn.cli.check_live import check_live

        raise typer.Exit(check_live(server, source, rendering, settings, outputs))
    if not files:
        raise InvalidInput(
            "there is nothing to check: name log files, or --template-only FILE, or --server URL"
        )
    raise typer.Exit(check_files(source, rendering, settings, engine, baseline, outputs, jobs=jobs))


def _refuse_more(template_only: Path, files: list[str] | None, server: str | None) -> None:
    if files or server:
        raise InvalidInput(
            f"--template-only {template_only} takes no log and no server; run it by itself"
        )
