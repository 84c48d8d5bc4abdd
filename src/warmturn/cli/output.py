"""Results to where the user wants them."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from warmturn.errors import InvalidInput

__all__ = ["write_json", "write_text"]


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
        raise InvalidInput(
            f"{option} {target}: {reason}; name a file that can be written"
        ) from error
