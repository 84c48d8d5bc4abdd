"""`warmturn vllm`: vLLM started in the way that keeps conversations warm."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from warmturn.cli.output import check_json_target, write_json
from warmturn.errors import InvalidInput
from warmturn.integrations import (
    EventSockets,
    ServeCommand,
    ServeUse,
    TierUse,
    serve_command,
)
from warmturn.integrations.vllm_command import KNOWN_VERSIONS
from warmturn.integrations.vllm_installed import find_vllm, installed_version
from warmturn.stores.opening import check_shared_url, disk_spec, size_in_bytes

__all__ = ["app"]

app = typer.Typer(help="Start vLLM so that later turns are warm.", no_args_is_help=True)


@app.callback()
def _vllm() -> None:
    pass  # keeps `command` a subcommand while it is the only one


@app.command(context_settings={"allow_extra_args": False})
def command(
    model: Annotated[str, typer.Argument(help="Directory or hub id, as vLLM takes it.")],
    extra: Annotated[
        list[str] | None,
        typer.Argument(help="Options for vLLM itself, after a lone --; they win."),
    ] = None,
    *,
    name: Annotated[str | None, typer.Option(help="The name clients send.")] = None,
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to bind.")] = 8000,
    cpu: Annotated[bool, typer.Option("--cpu", help="For vLLM's CPU build.")] = False,
    events: Annotated[
        Path | None,
        typer.Option(help="Folder for the event sockets kv.sock and replay.sock; none: no events."),
    ] = None,
    cache_metrics: Annotated[
        bool, typer.Option("--cache-metrics", help="Measure how long blocks live and lie idle.")
    ] = False,
    token_ids: Annotated[
        bool, typer.Option("--token-ids", help="Open the endpoints that take and give token ids.")
    ] = False,
    host_tier: Annotated[
        str | None, typer.Option(help="Host memory for evicted blocks, such as 8GiB.")
    ] = None,
    disk_tier: Annotated[
        str | None, typer.Option(help="PATH:SIZE: a folder of this replica's own on a local disk.")
    ] = None,
    shared_tier: Annotated[
        str | None,
        typer.Option(help="A store for all replicas: redis://HOST:PORT or file:///FOLDER."),
    ] = None,
    vllm_version: Annotated[
        str | None,
        typer.Option(help=f"Write the line for this version; known: {', '.join(KNOWN_VERSIONS)}."),
    ] = None,
    vllm: Annotated[str, typer.Option(help="The vllm program that --run starts.")] = "vllm",
    run: Annotated[bool, typer.Option("--run", help="Start it instead of only printing.")] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the result here; - for stdout.")
    ] = None,
) -> None:
    """Print the vllm serve line for a model, and warn of settings that break multi-turn reuse.

    The line goes to standard output, reasons and warnings to standard error.
    JSON keys: version, environment, arguments, options, warnings.
    """
    check_json_target(json_file)
    program = find_vllm(vllm) if run else None
    version = vllm_version or (installed_version(program) if program else KNOWN_VERSIONS[-1])
    use = ServeUse(
        model=model,
        served_name=name,
        host=host,
        port=port,
        version=version,
        on_cpu=cpu,
        events=_sockets(events),
        cache_metrics=cache_metrics,
        token_ids=token_ids,
        tiers=_tiers(host_tier, disk_tier, shared_tier),
        extra=tuple(extra or ()),
    )
    line = serve_command(use, os.environ)
    write_json(_data(line, version), json_file)
    _print(line, quiet=json_file == "-")
    if program is not None:
        _become(program, line)


def _sockets(folder: Path | None) -> EventSockets | None:
    if folder is None:
        return None
    if not folder.is_dir():
        raise InvalidInput(f"--events {folder}: no such folder; make one that only you can read")
    if folder.stat().st_mode & 0o077:
        raise InvalidInput(
            f"--events {folder}: others can read it, and events carry prompts and salts in clear; "
            f"chmod 700 {folder}"
        )
    path = folder.resolve()
    return EventSockets(f"ipc://{path}/kv.sock", f"ipc://{path}/replay.sock")


def _tiers(host: str | None, disk: str | None, shared: str | None) -> TierUse | None:
    """Check what vLLM would refuse only after half a minute of starting."""
    if host is None:
        if disk or shared:
            raise InvalidInput(
                "--disk-tier and --shared-tier pass through host memory; add --host-tier SIZE"
            )
        return None
    size_in_bytes(host, option="--host-tier")
    if disk is not None:
        disk_spec(disk)
    if shared is not None:
        check_shared_url(shared)
    return TierUse(host, disk, shared)


def _data(line: ServeCommand, version: str) -> dict[str, Any]:
    return {
        "version": version,
        "environment": dict(line.environment),
        "arguments": list(line.arguments),
        "options": [{"words": list(o.words), "why": o.why} for o in line.options],
        "warnings": [
            {"setting": w.setting, "effect": w.effect, "why": w.why, "remedy": w.remedy}
            for w in line.warnings
        ],
    }


def _print(line: ServeCommand, *, quiet: bool) -> None:
    if not quiet:
        typer.echo(line.shell())
    console = Console(stderr=True)
    for option in line.options:
        text = Text.assemble((f"{option.words[0]:32}", "dim"), option.why)
        console.print(text, soft_wrap=True)
    for warning in line.warnings:
        text = Text.assemble((f"warning ({warning.effect}) ", "yellow"), str(warning))
        console.print(text, soft_wrap=True)


def _become(program: Path, line: ServeCommand) -> None:
    """Go on as vLLM: signals and the exit code are its own."""
    arguments = [str(program), *line.arguments[1:]]
    sys.stdout.flush()
    os.execve(program, arguments, os.environ | dict(line.environment))  # noqa: S606 - no shell
