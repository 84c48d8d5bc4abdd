"""The order of one source's event batches: what was missed, what came twice, who began again.

    from        what is seen                                        to
    UNKNOWN     first batch is number 0, or replayed from there     EXACT
    UNKNOWN     first batch has a higher number, no full replay     DEGRADED
    EXACT       a gap that no replay fills                          DEGRADED
    any         everything is cleared, in order                     EXACT
    any         restart, undecodable batch, hits collapsed          UNKNOWN

Sequence order is the only order: a batch with a lower number never takes effect after one with a
higher number. While a replay is awaited, live batches are held back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from warmturn.cache.events import EventBatch
from warmturn.fleet.sources import SourceId

__all__ = ["Arrival", "EventSequence", "Received", "ReplayRequest", "SourceState"]

RESTART_WINDOW = 64
"""A number below this, and at least this far behind the newest, is a new life of the engine.
A late duplicate is rarely that low, and a restart rarely stays unnoticed for that many batches."""

MAX_HELD_BATCHES = 4096
"""Held back while a replay is awaited; beyond that the replay is given up."""


class SourceState(StrEnum):
    """How much of what a source has announced is known."""

    EXACT = "EXACT"
    """Every event since its start, or since a clear, was applied in order."""
    DEGRADED = "DEGRADED"
    """Some events are missing for certain."""
    UNKNOWN = "UNKNOWN"
    """Never in contact, or known to be wrong."""


class Arrival(StrEnum):
    """What became of one live batch."""

    APPLIED = "applied"
    HELD = "held"
    """Behind a gap; it is applied when the replay ends."""
    LATE = "late"
    """Numbered below the newest, and no restart: dropped."""
    DUPLICATE = "duplicate"
    RESTARTED = "restarted"
    """The engine began again: everything it held is forgotten, then the batch was applied."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Ask the source's replay socket for all batches from `from_seq` on."""

    source: SourceId
    from_seq: int
    ticket: int
    """Which request: answers to one that was overtaken by a restart are ignored."""


@dataclass(frozen=True, slots=True)
class Received:
    """Outcome of one live batch, and what to ask for because of it."""

    arrival: Arrival
    replay: ReplayRequest | None = None


class EventSequence:
    """One source's numbers. A batch of None stands for one that could not be decoded."""

    def __init__(
        self,
        source: SourceId,
        *,
        apply: Callable[[EventBatch], None],
        forget: Callable[[], None],
    ) -> None:
        """`apply` takes effect of a batch, `forget` drops everything the source holds."""
        self.source = source
        self.state = SourceState.UNKNOWN
        self.last_seq: int | None = None
        """Highest number applied in this life of the engine."""
        self.num_replayed_twice = 0
        """Replayed batches not applied because they are, or will be, delivered live."""
        self.num_restarts = 0
        self.restarted_since_start_seen = False
        """A restart was seen in the numbers; the process's new start time is not another one."""
        self._apply, self._forget = apply, forget
        self._last_batch: EventBatch | None = None
        self._held: dict[int, EventBatch | None] = {}
        self._pending: ReplayRequest | None = None
        self._replayed: dict[int, EventBatch | None] = {}
        self._replay_next: int | None = None
        self._num_tickets = 0

    def receive(self, seq: int, batch: EventBatch | None) -> Received:
        """Take one live batch."""
        arrival = Arrival.APPLIED
        newest = self._newest()
        if newest is not None and seq <= newest:
            if not self._is_restart(seq, newest, batch):
                return Received(Arrival.DUPLICATE if seq == newest else Arrival.LATE)
            self._begin_again()
            self.restarted_since_start_seen = True
            arrival = Arrival.RESTARTED
        self._held[seq] = batch
        if self._pending is not None:
            return Received(Arrival.HELD, self._give_up_if_full())
        replay = self._apply_held()
        held = arrival is Arrival.APPLIED and seq in self._held
        return Received(Arrival.HELD if held else arrival, replay)

    def connect(self) -> ReplayRequest:
        """Ask for everything from the start: to be called once the live socket is subscribed."""
        return self._request(0 if self.last_seq is None else self.last_seq + 1)

    def restart(self) -> ReplayRequest:
        """The engine is known to have begun again (its start time, its health): forget and ask."""
        self._begin_again()
        return self._request(0)

    def replayed(self, request: ReplayRequest, seq: int, batch: EventBatch | None) -> None:
        """Take one batch of the answer to `request`.

        Its first one is where the publisher's memory begins. What follows in order takes effect at
        once, so that a long answer costs no long pause at its end; the rest waits for the end.
        """
        if not self._is_current(request):
            return
        is_known = self.last_seq is not None and seq <= self.last_seq
        if seq < request.from_seq or seq in self._replayed or is_known:
            self.num_replayed_twice += 1
            return
        self._replayed[seq] = batch
        if self._replay_next is None:
            self._replay_next = seq
        first_live = min(self._held, default=None)
        while self._replay_next in self._replayed:
            if first_live is not None and self._replay_next >= first_live:
                return
            self._take_effect(self._replay_next, self._replayed.pop(self._replay_next))
            self._replay_next += 1

    def replay_ended(self, request: ReplayRequest, *, answered: bool) -> ReplayRequest | None:
        """Apply the answer, then what was held back. Returns what to ask for next, if anything.

        Call it at the end mark, and with `answered` False when there is no replay socket, no
        answer in time, or one without an end mark.
        """
        if not self._is_current(request):
            return None
        self._pending = None
        first_live = min(self._held, default=None)
        for seq, batch in sorted(self._replayed.items()):
            if first_live is not None and seq >= first_live:
                self.num_replayed_twice += 1
            else:
                self._take_effect(seq, batch)
        self._replayed = {}
        if first_live is not None:
            self._take_effect(first_live, self._held.pop(first_live))
        elif answered and self.last_seq is None:
            self.state = SourceState.EXACT  # asked from the start: nothing was ever announced
        return self._apply_held()

    def degrade(self) -> None:
        """Something is missing for certain."""
        if self.state is SourceState.EXACT:
            self.state = SourceState.DEGRADED

    def distrust(self) -> None:
        """What is known is wrong, until a clear or a restart."""
        self.state = SourceState.UNKNOWN

    def cleared(self) -> None:
        """Everything was cleared in order: nothing older can be missing any more."""
        self.state = SourceState.EXACT

    def _newest(self) -> int | None:
        return max(self._held, default=self.last_seq)

    def _is_restart(self, seq: int, newest: int, batch: EventBatch | None) -> bool:
        last = self._held.get(newest, self._last_batch)
        if seq == newest == 0:  # an engine that restarted after one batch, or that batch again
            return batch != last
        if batch is not None and last is not None and batch.timestamp_s > last.timestamp_s:
            return True  # a late batch is older than the newest by the publisher's own clock
        return seq == 0 or (seq < RESTART_WINDOW and newest - seq >= RESTART_WINDOW)

    def _begin_again(self) -> None:
        self._forget()
        self.state = SourceState.UNKNOWN
        self.last_seq = self._last_batch = self._pending = None
        self._held, self._replayed = {}, {}
        self.num_restarts += 1

    def _apply_held(self) -> ReplayRequest | None:
        """Apply held batches as long as they are in order; ask for what is missing before one."""
        for seq in sorted(self._held):
            expected = 0 if self.last_seq is None else self.last_seq + 1
            if seq > expected:
                return self._request(expected)
            self._take_effect(seq, self._held.pop(seq))
        return None

    def _take_effect(self, seq: int, batch: EventBatch | None) -> None:
        expected = 0 if self.last_seq is None else self.last_seq + 1
        if self.last_seq is None:
            self.state = SourceState.EXACT if seq == 0 else SourceState.DEGRADED
        elif seq != expected:
            self.degrade()
        self.last_seq, self._last_batch = seq, batch
        if batch is None:
            self.distrust()
        else:
            self._apply(batch)

    def _request(self, from_seq: int) -> ReplayRequest:
        self._num_tickets += 1
        self._replayed, self._replay_next = {}, None
        self._pending = ReplayRequest(self.source, from_seq, self._num_tickets)
        return self._pending

    def _is_current(self, request: ReplayRequest) -> bool:
        return self._pending is not None and self._pending.ticket == request.ticket

    def _give_up_if_full(self) -> ReplayRequest | None:
        """Give up a replay that keeps too many batches waiting."""
        if self._pending is None or len(self._held) <= MAX_HELD_BATCHES:
            return None
        return self.replay_ended(self._pending, answered=False)
