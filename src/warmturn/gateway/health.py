"""Whether a replica may be sent anything, judged by traffic and by probes.

    from         what is seen                                     to
    UNKNOWN      a probe or an answer came back                   UP
    UNKNOWN, UP  `probe_failures` failed probes in a row          DOWN
    UNKNOWN, UP  `traffic_failures` failed tries in a row,        OPEN
                 or one refused connection
    HALF_OPEN    one failed try                                   OPEN, resting twice as long
    HALF_OPEN    an answer came back                              UP
    OPEN, DOWN   rest is over and a probe came back               HALF_OPEN
    OPEN         `probe_failures` failed probes in a row          DOWN

Only UP and HALF_OPEN are sent requests. UNKNOWN is not: a replica that still loads its weights
would fail its first callers. Draining stands beside all of this: a draining replica is not chosen
for new sessions, and may still be healthy. Pure: `now` is seconds, and nothing waits here.
"""

from dataclasses import dataclass
from enum import StrEnum

from warmturn.errors import InvalidInput

__all__ = ["Health", "HealthRule", "ReplicaState"]

REFUSED = "connect"
"""Why a try failed where nobody listens: no doubt about it, unlike a slow or broken answer."""


class ReplicaState(StrEnum):
    """What is known of a replica."""

    UNKNOWN = "unknown"
    """No probe or answer yet."""
    UP = "up"
    OPEN = "open"
    """The breaker is open: tries failed, and it rests."""
    HALF_OPEN = "half_open"
    """It rested and a probe came back; the next try decides."""
    DOWN = "down"
    """Probes fail."""


@dataclass(frozen=True, slots=True)
class HealthRule:
    """Counts and seconds; their defaults and reasons are in `config.HealthPart`."""

    probe_failures: int
    traffic_failures: int
    open_s: float
    max_open_s: float

    def __post_init__(self) -> None:
        if min(self.probe_failures, self.traffic_failures) < 1 or self.open_s <= 0:
            raise InvalidInput(
                f"{self.probe_failures} failed probes, {self.traffic_failures} failed tries and a "
                f"rest of {self.open_s} s were asked for; all must be above 0"
            )


class Health:
    """One replica's state. Methods return True where `is_alive` changed by them.

    Invariants, checked by `check()`:
    1. Failed tries are counted below the limit only: at the limit the breaker is open.
    2. `rest_until_s` is set exactly while OPEN or DOWN.
    """

    def __init__(self, rule: HealthRule, *, now: float) -> None:
        self._rule = rule
        self._num_failed_probes = 0
        self._num_failed_tries = 0
        self._rest_s = rule.open_s
        self.state = ReplicaState.UNKNOWN
        self.why = "not asked yet"
        """The last event that changed the state, in a few words."""
        self.since_s = now
        self.rest_until_s: float | None = None
        self.num_opened = 0

    @property
    def is_alive(self) -> bool:
        """Say whether requests may go there."""
        return self.state in (ReplicaState.UP, ReplicaState.HALF_OPEN)

    def probed(self, now: float, *, failure: str | None) -> bool:
        """Count one probe: `failure` says why it failed, None that it came back."""
        if failure is None:
            self._num_failed_probes = 0
            if self.state is ReplicaState.UNKNOWN:
                return self._go(ReplicaState.UP, "a probe came back", now)
            if self.rest_until_s is not None and now >= self.rest_until_s:
                return self._go(ReplicaState.HALF_OPEN, "a probe came back", now)
            return False
        self._num_failed_probes += 1
        if self._num_failed_probes < self._rule.probe_failures:
            return False
        if self.state is ReplicaState.DOWN:
            return False
        return self._go(ReplicaState.DOWN, f"probes failed: {failure}", now)

    def answered(self, now: float) -> bool:
        """Count one answer to a request; late ones of before the breaker opened change nothing."""
        if self.state in (ReplicaState.OPEN, ReplicaState.DOWN):
            return False
        self._num_failed_tries = 0
        if self.state is ReplicaState.UP:
            return False
        self._rest_s = self._rule.open_s
        return self._go(ReplicaState.UP, "it answered", now)

    def failed(self, why: str, now: float) -> bool:
        """Count one try that failed there, before or after its first byte."""
        if self.state in (ReplicaState.OPEN, ReplicaState.DOWN):
            return False
        self._num_failed_tries += 1
        is_certain = why == REFUSED or self.state is ReplicaState.HALF_OPEN
        if not is_certain and self._num_failed_tries < self._rule.traffic_failures:
            return False
        return self._go(ReplicaState.OPEN, f"requests failed: {why}", now)

    def check(self) -> None:
        """Assert the numbered invariants."""
        assert 0 <= self._num_failed_tries < self._rule.traffic_failures, "invariant 1"
        is_resting = self.state in (ReplicaState.OPEN, ReplicaState.DOWN)
        assert (self.rest_until_s is not None) == is_resting, "invariant 2"

    def _go(self, state: ReplicaState, why: str, now: float) -> bool:
        was_alive = self.is_alive
        if state is ReplicaState.OPEN:
            self.num_opened += 1
            self.rest_until_s = now + self._rest_s
            self._rest_s = min(self._rule.max_open_s, 2 * self._rest_s)
        elif state is ReplicaState.DOWN:
            self.rest_until_s = now  # probes failed: the first that comes back ends it
        else:
            self.rest_until_s = None
        self._num_failed_tries = 0
        self.state, self.why, self.since_s = state, why, now
        return self.is_alive != was_alive
