"""Sizes and times for people."""

import math

__all__ = ["bytes_text", "seconds_text"]

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def bytes_text(num_bytes: float) -> str:
    """Return bytes in binary units: `768.8 MiB`, `40 GiB`."""
    if math.isinf(num_bytes):
        return "no finite size"
    size, unit = float(num_bytes), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:,.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def seconds_text(seconds: float) -> str:
    """Return a time: `35 s`, `8.5 min`, `2.2 h`; `for ever` where nothing ends it."""
    if math.isinf(seconds):
        return "for ever"
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
