"""Results to where the user wants them."""

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from warmturn.errors import InvalidInput

__all__ = ["check_json_target", "check_target", "write_json", "write_text"]


def check_json_target(target: str | None) -> None:
    """Raise `InvalidInput` if `write_json` could not write to `target`; nothing is written."""
    check_target(target, option="--json")


def check_target(target: str | None, *, option: str) -> None:
    """Raise `InvalidInput` if `write_text` could not write to `target`; nothing is written.

    Called first of all, so that no work of minutes is lost to a misspelt path.
    """
    if target is None or target == "-":
        return
    path = Path(target)
    if path.is_dir():
        raise _cannot_write(option, target, "it is a directory")
    if not path.parent.is_dir():
        raise _cannot_write(option, target, f"{path.parent} is not a directory")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _cannot_write(option, target, "permission denied")


def write_json(result: dict[str, Any], target: str | None) -> None:
    """Write `result` to the file `target`, to standard output for `-`, nowhere for None.

    Raises `InvalidInput` when the file cannot be written.
    """
    write_text([json.dumps(result, indent=1), "\n"], target, option="--json")


def write_text(parts: Iterable[str], target: str | None, *, option: str) -> None:
    """Write `parts` as `write_json` does; `option` is named where it cannot be written."""
    if target is None:
        return
    if target == "-":
        sys.stdout.writelines(parts)
        sys.stdout.flush()
        return
    try:
        # Half a surrogate pair, which JSON can hold, has no UTF-8; it is shown as a question mark.
        with Path(target).open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(parts)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _cannot_write(option, target, str(reason)) from error


def _cannot_write(option: str, target: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{option} {target}: {reason}; name a file that can be written")
