"""The command line: one file per command, the only place where parts are wired together.

Exit codes of every command: 0 fine, 1 it found something, 2 it could not.
"""

import sys
from typing import Annotated

import typer

from warmturn import __version__
from warmturn.cli.check import check as _check
from warmturn.cli.demo import demo as _demo
from warmturn.cli.demo_fleet import demo_fleet as _demo_fleet
from warmturn.cli.demo_tiers import demo_tiers as _demo_tiers
from warmturn.cli.engine import engine as _engine
from warmturn.cli.horizon import horizon as _horizon
from warmturn.cli.model import app as _model
from warmturn.cli.plan import plan as _plan
from warmturn.cli.probe import app as _probe
from warmturn.cli.replay import replay as _replay
from warmturn.cli.route import app as _route
from warmturn.cli.serve import serve as _serve
from warmturn.cli.thinktime import thinktime as _thinktime
from warmturn.cli.vllm import app as _vllm
from warmturn.errors import CallerError, PeerError

__all__ = ["app", "main"]

app = typer.Typer(
    name="warmturn",
    help="Keep every conversation's KV cache warm in self-hosted LLM serving.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("engine")(_engine)
app.command("serve")(_serve)
app.command("demo")(_demo)
app.command("check")(_check)
app.command("demo-fleet")(_demo_fleet)
app.command("demo-tiers")(_demo_tiers)
app.command("replay")(_replay)
app.add_typer(_route, name="route")
app.command("plan")(_plan)
app.command("horizon")(_horizon)
app.command("thinktime")(_thinktime)
app.add_typer(_model, name="model")
app.add_typer(_probe, name="probe")
app.add_typer(_vllm, name="vllm")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"warmturn {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a mistake of the caller is one line and exit code 2."""
    try:
        app()
    except (CallerError, PeerError) as error:
        typer.echo(f"warmturn: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
