"""Large memory that may not be had: one clear error instead of what each library raises."""

from collections.abc import Iterator
from contextlib import contextmanager

from warmturn.errors import InvalidInput

__all__ = ["allocating"]


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
