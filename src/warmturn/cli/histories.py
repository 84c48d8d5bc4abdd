"""Logs with times, as the turns of their conversations."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from warmturn.errors import InvalidInput
from warmturn.formats import BadLine, LoggedRequest, read_log
from warmturn.session.turn_history import HistoryTurn, history_turn

__all__ = ["read_history"]

_STEP = 1000


def read_history(
    paths: Sequence[str], *, format_name: str | None = None, strict: bool = False
) -> list[HistoryTurn]:
    """Return the requests that have a time, a few hundred bytes each.

    Raises `InvalidInput` where none has: then nothing about time can be said.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    turns: list[HistoryTurn] = []
    num_bad = num_timeless = 0
    with shown as bar:
        task = bar.add_task("reading")
        for number, item in enumerate(read_log(paths, format=format_name, strict=strict), 1):
            turn = history_turn(item) if isinstance(item, LoggedRequest) else None
            if turn is not None:
                turns.append(turn)
            elif isinstance(item, BadLine):
                num_bad += 1
            else:
                num_timeless += 1
            if number % _STEP == 0:
                bar.update(task, description=f"{number:,} requests")
    if not turns:
        raise InvalidInput(
            f"no request of {', '.join(paths)} has a time ({num_timeless:,} without, {num_bad:,} "
            "lines not read); log a timestamp, and the end of each answer (end_time)"
        )
    if num_bad or num_timeless:
        note = f"{num_timeless:,} requests without a time and {num_bad:,} unread lines left out"
        console.print(note, style="yellow", highlight=False)
    return turns
