"""Where each live session was sent last, and what it will bring back there.

One gateway's memory: bounded, forgotten after a while. Without it a turn falls back to the ranking
that all gateways share.
"""

from collections import OrderedDict
from math import inf
from typing import NamedTuple, TypeAlias

from warmturn.errors import InvalidInput
from warmturn.types import ReplicaId

__all__ = ["Binding", "Bindings"]

DEFAULT_MAX_SESSIONS = 200_000
"""Some 60 MB; the least recently used go first."""
DEFAULT_IDLE_S = 4 * 3600.0
"""Precedent of other sticky tables; by then the blocks are long evicted."""


class Binding(NamedTuple):
    """One session's place."""

    replica: ReplicaId
    rank: int
    num_tokens: int
    """Length of its last prompt and answer: what the next turn will find or recompute."""
    used_s: float


_Entry: TypeAlias = tuple[ReplicaId, int, int, float]
"""A binding's fields. Plain tuples of plain values are no work for the garbage collector, which
would stop a gateway with 200,000 sessions for a tenth of a second."""


class Bindings:
    """Session key to place.

    Invariants, checked by `check()`:
    1. At most `max_sessions` sessions, in order of use.
    2. `session_tokens` of a place is the sum over its sessions.
    """

    def __init__(
        self, *, max_sessions: int = DEFAULT_MAX_SESSIONS, idle_s: float = DEFAULT_IDLE_S
    ) -> None:
        """Raises `InvalidInput` unless both are above 0."""
        if max_sessions < 1 or idle_s <= 0:
            raise InvalidInput(
                f"{max_sessions} sessions for {idle_s} s were asked for; both must be above 0"
            )
        self._max_sessions, self._idle_s = max_sessions, idle_s
        self._bindings: OrderedDict[str, _Entry] = OrderedDict()  # least recently used first
        self._tokens: dict[tuple[ReplicaId, int], int] = {}
        self._oldest_s = inf  # nobody was used before: most calls need not look

    def __len__(self) -> int:
        return len(self._bindings)

    def get(self, session: str, *, now: float) -> Binding | None:
        """Return the session's place, None where it has none or was idle for too long."""
        self._expire(now)
        entry = self._bindings.get(session)
        return None if entry is None else Binding._make(entry)

    def bind(
        self, session: str, replica: ReplicaId, rank: int, *, num_tokens: int, now: float
    ) -> None:
        """Say that the session is at a place now, with that many tokens."""
        entry = self._bindings.get(session)
        if entry is None:
            self._add(replica, rank, num_tokens)
        else:
            self._bindings.move_to_end(session)
            if entry[0] == replica and entry[1] == rank:
                self._add(replica, rank, num_tokens - entry[2])
            else:
                self._add(entry[0], entry[1], -entry[2])
                self._add(replica, rank, num_tokens)
        self._bindings[session] = replica, rank, num_tokens, now
        self._oldest_s = min(self._oldest_s, now)
        self._expire(now)
        while len(self._bindings) > self._max_sessions:
            self.forget(next(iter(self._bindings)))

    def resize(self, session: str, replica: ReplicaId, rank: int, *, num_tokens: int) -> None:
        """Say how long a session is that is still bound there; any other is left as it is."""
        entry = self._bindings.get(session)
        is_there = entry is not None and entry[0] == replica and entry[1] == rank
        if entry is not None and is_there and entry[2] != num_tokens:
            self._bindings[session] = replica, rank, num_tokens, entry[3]
            self._add(replica, rank, num_tokens - entry[2])

    def forget(self, session: str) -> None:
        """Drop a session; unknown ones are no error."""
        entry = self._bindings.pop(session, None)
        if entry is not None:
            replica, rank, num_tokens, _ = entry
            self._add(replica, rank, -num_tokens)

    def session_tokens(self, replica: ReplicaId, rank: int) -> int:
        """Return the tokens of all sessions bound there."""
        return self._tokens.get((replica, rank), 0)

    def tokens_by_place(self) -> dict[tuple[ReplicaId, int], int]:
        """Return a copy of all sums above 0. O(places)."""
        return self._tokens.copy()

    def check(self) -> None:
        """Assert the numbered invariants."""
        bindings = [Binding._make(entry) for entry in self._bindings.values()]
        times = [binding.used_s for binding in bindings]
        assert len(times) <= self._max_sessions, "invariant 1"
        assert times == sorted(times), "invariant 1"
        sums: dict[tuple[ReplicaId, int], int] = {}
        for binding in bindings:
            place = binding.replica, binding.rank
            sums[place] = sums.get(place, 0) + binding.num_tokens
        assert {place: n for place, n in sums.items() if n} == self._tokens, "invariant 2"

    def _add(self, replica: ReplicaId, rank: int, num_tokens: int) -> None:
        place = replica, rank
        total = self._tokens.get(place, 0) + num_tokens
        if total:
            self._tokens[place] = total
        else:
            self._tokens.pop(place, None)

    def _expire(self, now: float) -> None:
        if now - self._oldest_s <= self._idle_s:
            return
        self._oldest_s = inf
        while self._bindings:
            session = next(iter(self._bindings))
            used_s = self._bindings[session][3]
            if now - used_s <= self._idle_s:
                self._oldest_s = used_s
                return
            self.forget(session)
