"""The C library's heap: memory that was freed goes back to the system.

Loading weights and prefilling long chunks leave tens of megabytes in glibc's arenas, which
count as resident for ever. Elsewhere than on glibc nothing happens.
"""

import ctypes
from typing import Any

__all__ = ["give_back", "share_arenas"]

_M_ARENA_MAX = -8  # malloc.h


def share_arenas(num_arenas: int) -> None:
    """Let all threads allocate from so many arenas; the default is eight per core."""
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, num_arenas)


def give_back() -> None:
    """Return free memory to the system; takes milliseconds."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(name: str) -> Any:
    """Return a function of the C library this process runs on; None if it has none such."""
    return getattr(ctypes.CDLL(None), name, None)
