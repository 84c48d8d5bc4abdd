"""Results on disk, so that memory does not grow with the log."""

import pickle
import tempfile
import weakref
from array import array
from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Generic, TypeVar

from warmturn.errors import PeerError

__all__ = ["Spool", "SpoolIndex"]

T = TypeVar("T")

SpoolIndex = tuple["array[int]", "array[int]"]
"""Number and place in the file of each value: 16 bytes of memory for one."""


class Spool(Generic[T]):
    """Values in a temporary file without a name, read in the order of their numbers.

    Numbers are given once each. The file is gone with the object, whatever happens.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the spool
        weakref.finalize(self, self._file.close)
        self._numbers, self._places = array("q"), array("q")
        self._is_sorted = True

    def add(self, value: T, *, number: int) -> None:
        """Write one more value. Raises `PeerError` where the disk is full."""
        self._is_sorted &= not self._numbers or number > self._numbers[-1]
        self._numbers.append(number)
        try:
            self._places.append(self._file.seek(0, 2))
            _Pickler(self._file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        except OSError as error:
            raise PeerError(
                f"cannot write results to a temporary file: {error.strerror}; free some room, or "
                "set TMPDIR to a folder that has it"
            ) from error

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        """Yield the values by number. Several may read at a time."""
        if not self._is_sorted:
            pairs = sorted(zip(self._numbers, self._places, strict=True))
            self._numbers = array("q", (number for number, _ in pairs))
            self._places = array("q", (place for _, place in pairs))
            self._is_sorted = True
        for place in self._places:
            self._file.seek(place)
            value: T = pickle.load(self._file)  # noqa: S301 - nobody else can write to this file
            yield value

    def handed_over(self) -> SpoolIndex:
        """Write all out; the index lets the process that opened the file read what this one wrote."""
        self._file.flush()
        return self._numbers, self._places

    def take_over(self, index: SpoolIndex) -> None:
        """Read what another process has written to this spool's file."""
        self._numbers, self._places = index
        self._is_sorted = False


class _Pickler(pickle.Pickler):
    """Writes dataclasses by their fields: those with slots go a slow way by themselves."""

    def reducer_override(self, value: object) -> Any:
        """Return how to make `value` again."""
        kind: Any = type(value)  # mypy takes a class's own __hash__ for its instances'
        fields_of = _fields_of(kind)
        return NotImplemented if fields_of is None else (type(value), fields_of(value))


@cache
def _fields_of(kind: Hashable) -> Callable[[object], tuple[Any, ...]] | None:
    if not isinstance(kind, type) or not is_dataclass(kind):
        return None
    names = [field.name for field in fields(kind)]
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda value: (read(value),)
