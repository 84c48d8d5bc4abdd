"""Blocks that were routed somewhere and whose events have not come yet.

Several requests of one burst arrive before the first block is announced. Without this each of them
would be sent, and computed, elsewhere.
"""

from collections import deque
from collections.abc import Iterable

from warmturn.errors import BrokenInvariant
from warmturn.fleet.chain import IndexHashes

__all__ = ["Expectation", "ExpectedBlocks"]

LINGER_S = 1.0
"""After the first byte: prefill is done, and its events are a step or two behind it."""


class Expectation:
    """One request's blocks at one source."""

    __slots__ = ("hashes", "is_open")

    def __init__(self, hashes: list[int]) -> None:
        self.hashes = hashes
        self.is_open = True


class ExpectedBlocks:
    """What one source is expected to announce soon.

    Invariant, checked by `check()`: 1. a block's count is the number of expectations that hold it.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._all: set[Expectation] = set()
        self._leaving: deque[tuple[float, Expectation]] = deque()

    def __len__(self) -> int:
        return len(self._counts)

    def expect(self, hashes: IndexHashes) -> Expectation:
        """Count blocks as held; give the expectation back with `arrived`."""
        made = Expectation(hashes.tolist())
        for block in made.hashes:
            self._counts[block] = self._counts.get(block, 0) + 1
        self._all.add(made)
        return made

    def arrived(self, expectation: Expectation, *, now: float) -> None:
        """The request's prefill is done or given up: its events tell from here on, or nothing."""
        if expectation.is_open:
            expectation.is_open = False
            self._leaving.append((now + LINGER_S, expectation))

    def expire(self, now: float) -> None:
        """Drop what lingered long enough."""
        while self._leaving and self._leaving[0][0] <= now:
            self._forget(self._leaving.popleft()[1])

    def clear(self) -> None:
        """The source began anew: nothing is on its way any more."""
        for expectation in self._all:
            expectation.is_open = False
        self._counts, self._all = {}, set()
        self._leaving.clear()

    def run(self, hashes: Iterable[int]) -> int:
        """Return how many of `hashes` are expected, up to the first that is not."""
        num = 0
        for block in hashes:
            if block not in self._counts:
                break
            num += 1
        return num

    def check(self) -> None:
        """Raise `BrokenInvariant` where the counts are wrong."""
        counts: dict[int, int] = {}
        for expectation in self._all:
            for block in expectation.hashes:
                counts[block] = counts.get(block, 0) + 1
        if counts != self._counts:
            raise BrokenInvariant("expected blocks: invariant 1 does not hold")

    def _forget(self, expectation: Expectation) -> None:
        if expectation not in self._all:
            return
        self._all.discard(expectation)
        for block in expectation.hashes:
            left = self._counts[block] - 1
            if left:
                self._counts[block] = left
            else:
                del self._counts[block]
