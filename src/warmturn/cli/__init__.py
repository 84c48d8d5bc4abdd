"""The command line: one file per command, the only place where parts are wired together."""

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    name="warmturn",
    help="Keep every conversation's KV cache warm in self-hosted LLM serving.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    app()
