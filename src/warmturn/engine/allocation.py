"""Large memory that may not be had: one clear error instead of what each library raises."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from warmturn.errors import InvalidInput

__all__ = ["allocating", "give_back_freed_memory"]


@contextmanager
def allocating(what: str, num_bytes: int, *, remedy: str) -> Iterator[None]:
    """Raise `InvalidInput` where the block cannot have the `num_bytes` it allocates.

    mmap says OSError or OverflowError, numpy MemoryError, torch RuntimeError. The block must
    do nothing but allocate, or their errors of other kinds would be told as this one.
    """
    try:
        yield
    except (OSError, OverflowError, MemoryError, RuntimeError) as error:
        raise InvalidInput(
            f"{what} needs {num_bytes / 1e9:,.1f} GB of memory, more than can be had; {remedy}"
        ) from error


def give_back_freed_memory() -> None:
    """Return memory that is freed but kept by the C library to the system, where it can.

    glibc keeps holes of freed temporaries, tens of megabytes after a long prefill: resident for
    nothing. Does nothing under other C libraries. Takes milliseconds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
