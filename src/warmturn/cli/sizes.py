"""Sizes and rates as users write them: `40GiB`, `25GB`, `1.5TB`, or plain bytes."""

import math
import re

from warmturn.errors import InvalidInput

__all__ = ["bytes_of"]

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", 1)}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*(?:/s)?\s*", re.IGNORECASE)


def bytes_of(text: str, *, option: str) -> int:
    """Return the bytes of a size as written. Raises `InvalidInput` naming the option."""
    match = _SIZE.fullmatch(text)
    unit = None if match is None else _UNITS.get(match[2].lower())
    if match is None or unit is None:
        raise InvalidInput(f"{option} {text[:40]!r} is no size; write 40GiB, 25GB or bytes")
    size = float(match[1]) * unit
    if not math.isfinite(size) or size >= 2**63:
        raise InvalidInput(f"{option} {text[:40]!r} is too large; write 40GiB, 25GB or bytes")
    return int(size)
