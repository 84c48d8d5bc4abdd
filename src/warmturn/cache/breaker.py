"""When to leave a store alone that fails or stalls."""

__all__ = ["CircuitBreaker"]


class CircuitBreaker:
    """Closed while a store answers; open after failures in a row; then one try at a time.

        closed --failures in a row--> open --after pause_s--> half open --success--> closed
                                        ^                        |
                                        +-------failure----------+   (twice the pause)

    Times are seconds on the caller's clock.
    """

    def __init__(
        self, *, max_failures: int = 3, pause_s: float = 5.0, longest_pause_s: float = 60.0
    ) -> None:
        """Three failures in a row are no accident; a restart of a store takes seconds."""
        self._max_failures = max_failures
        self._first_pause_s = pause_s
        self._longest_pause_s = longest_pause_s
        self._pause_s = pause_s
        self._num_failures = 0
        self._open_until_s: float | None = None
        self._is_trying = False
        self.num_openings = 0

    def allows(self, now: float) -> bool:
        """Tell whether the store may be asked now. Half open, one caller per pause may."""
        if self._open_until_s is None:
            return True
        if now < self._open_until_s:
            return False
        self._open_until_s = now + self._pause_s  # should this try never be heard of again
        self._is_trying = True
        return True

    @property
    def is_closed(self) -> bool:
        """True while nothing is wrong."""
        return self._open_until_s is None

    def succeeded(self) -> None:
        """Note an answer."""
        self._num_failures = 0
        self._open_until_s = None
        self._is_trying = False
        self._pause_s = self._first_pause_s

    def failed(self, now: float) -> None:
        """Note a time-out or an error."""
        self._num_failures += 1
        if self._is_trying:
            self._pause_s = min(2 * self._pause_s, self._longest_pause_s)
        elif self._num_failures < self._max_failures or self._open_until_s is not None:
            return  # not yet, or a late answer to what was asked before it opened
        self._open_until_s = now + self._pause_s
        self._is_trying = False
        self.num_openings += 1
