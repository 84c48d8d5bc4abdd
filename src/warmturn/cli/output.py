"""Results to where the user wants them."""

import json
import os
from pathlib import Path
from typing import Any

from warmturn.errors import InvalidInput

__all__ = ["check_json_target", "write_json"]


def check_json_target(target: str | None) -> None:
    """Raise `InvalidInput` if `write_json` could not write to `target`; nothing is written.

    Called first of all, so that no work of minutes is lost to a misspelt path.
    """
    if target is None or target == "-":
        return
    path = Path(target)
    if path.is_dir():
        raise _cannot_write(target, "it is a directory")
    if not path.parent.is_dir():
        raise _cannot_write(target, f"{path.parent} is not a directory")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _cannot_write(target, "permission denied")


def write_json(result: dict[str, Any], target: str | None) -> None:
    """Write `result` to the file `target`, to standard output for `-`, nowhere for None.

    Raises `InvalidInput` when the file cannot be written.
    """
    if target is None:
        return
    text = json.dumps(result, indent=1) + "\n"
    if target == "-":
        print(text, end="", flush=True)  # noqa: T201 - this is the result
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _cannot_write(target, str(error.strerror)) from error


def _cannot_write(target: str, reason: str) -> InvalidInput:
    return InvalidInput(f"--json {target}: {reason}; name a file that can be written")
