"""Results to where the user wants them."""

import json
from pathlib import Path
from typing import Any

from warmturn.errors import InvalidInput

__all__ = ["write_json"]


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
        raise InvalidInput(
            f"--json {target}: {error.strerror}; name a file that can be written"
        ) from error
