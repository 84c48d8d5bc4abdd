"""Names of causes, whose fault each one is, and the level at which each breaks.

The names are those of the case files (tests/cases/data/README.md); ours follow their form:
who is to blame, a dot, what happened.
"""

from typing import Literal, TypeAlias

__all__ = ["LEVELS", "UNKNOWN", "Blame", "Level", "Verdict", "blame_of"]

Level: TypeAlias = Literal["messages", "echo", "text", "tokens"]
Blame: TypeAlias = Literal["client", "template", "server", "nobody"]
Verdict: TypeAlias = Literal["append-only", "break", "not-comparable"]

LEVELS: tuple[Level, ...] = ("messages", "echo", "text", "tokens")
"""In the order in which a difference is looked for."""

UNKNOWN = "unknown"
"""No suspect that could be undone moves the break."""

_BLAME_OF_PREFIX: dict[str, Blame] = {
    "client": "client",
    "template": "template",
    "server": "server",
    # Ids change because text comes back where ids were generated. In the chat API nothing else
    # can come back, but only the side that sends it can keep the ids.
    "token": "client",
}


def blame_of(cause: str) -> Blame:
    """Return whose fault `cause` is; `nobody` for unknown causes and side requests."""
    return _BLAME_OF_PREFIX.get(cause.partition(".")[0], "nobody")
