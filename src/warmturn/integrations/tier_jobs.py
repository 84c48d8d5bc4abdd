"""Blocks of a foreign engine's host tier, written to and read from one of our stores.

The engine decides what is written and what is read, and owns the host memory; this knows what
lies in the store, has threads move it, and lets nothing pass that is not what was written. All
methods are for one thread (the engine's scheduler) and return at once, but `drain` and `close`.

    look_up ──▶ in the index, or asked of the shared store in the background
    store, load ──▶ parts of a few blocks ──▶ threads ──▶ take_done: index updated, job reported
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeAlias

import numpy as np

from warmturn.cache.fingerprint import Digest
from warmturn.cache.lower_tier import LowerTier
from warmturn.cache.record import block_checksum
from warmturn.cache.transfers import Outcome, TierName
from warmturn.errors import PeerError
from warmturn.stores.mover import SharedStore
from warmturn.stores.slab import DiskSlab
from warmturn.types import BlockHash

__all__ = ["JobDone", "TierJobs"]

log = logging.getLogger(__name__)

BLOCKS_PER_PART = 8
"""As in `cache.tiers`: several threads share a job, and none holds a store for long."""
MAX_QUEUED_BYTES = 256 * 2**20
ABSENT_S = 1.0
"""How long the shared store's "no" is believed: until the request that asked has gone on."""
NUM_READERS, NUM_WRITERS = 4, 2

Row: TypeAlias = memoryview
"""One block in the engine's host memory, page-aligned, `block_bytes` long."""


@dataclass(frozen=True, slots=True)
class JobDone:
    """The end of a job. Blocks that the store has already, or has no room for, are no failure."""

    number: int
    good: tuple[BlockHash, ...]
    """Of a load: blocks whose rows now hold what was written."""
    num_failed: int
    num_bytes: int
    seconds: float


@dataclass(slots=True)
class _Job:
    number: int
    is_load: bool
    keys: tuple[BlockHash, ...]
    started_s: float
    num_parts: int = 0
    outcomes: dict[BlockHash, Outcome] = field(default_factory=dict)


_Part: TypeAlias = list[tuple[BlockHash, int | None, Row]]


class TierJobs:
    """One store, disk or shared, and what is on its way to and from it.

    Invariants, checked by `check()`:

    1. A slot of the disk is reserved or pinned exactly as long as a part with its block is out.
    2. Every job is reported once: it has parts out, or waits in `take_done`.
    """

    def __init__(
        self,
        store: DiskSlab | SharedStore,
        owner: Digest,
        *,
        block_bytes: int,
        lookup_timeout_s: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lookup_timeout_s`: how long a request waits to hear whether the shared store has it."""
        self._store = store
        self._owner = owner
        self._block_bytes = block_bytes
        self._lookup_timeout_s = lookup_timeout_s
        self._clock = clock
        is_disk = isinstance(store, DiskSlab)
        self.tier = LowerTier(
            TierName.DISK if is_disk else TierName.SHARED,
            num_slots=store.num_slots if isinstance(store, DiskSlab) else None,
            block_bytes=block_bytes,
            max_queued_blocks=max(1, MAX_QUEUED_BYTES // block_bytes),
        )
        if isinstance(store, DiskSlab) and self.tier.index is not None:
            self.tier.index.restore(store.found())
        self._readers = ThreadPoolExecutor(NUM_READERS, "tier-read")
        self._writers = ThreadPoolExecutor(NUM_WRITERS, "tier-write")
        self._came: SimpleQueue[tuple[_Job, dict[BlockHash, Outcome]]] = SimpleQueue()
        self._done: list[JobDone] = []
        self._jobs: dict[int, _Job] = {}
        self._asked: dict[BlockHash, float] = {}  # of the shared store -> until when to wait
        self._to_ask: list[BlockHash] = []
        self._absent: dict[BlockHash, float] = {}  # -> until when that is believed
        self._answers: SimpleQueue[tuple[tuple[BlockHash, ...], list[bool] | None]] = SimpleQueue()

    # --- what is there ---

    def look_up(self, key: BlockHash) -> bool | None:
        """Say whether a block can be loaded; None while the shared store is being asked.

        Questions go out with `ask`, once per step. After `lookup_timeout_s` the answer is no.
        """
        now = self._clock()
        if self.tier.has(key, now=now):
            return self.tier.may_read(now=now)
        if self.tier.index is not None or self._absent.get(key, 0.0) > now:
            return False
        deadline = self._asked.get(key)
        if deadline is not None:
            return None if now < deadline else False
        if not self.tier.reads.allows(now):
            return False
        self._asked[key] = now + self._lookup_timeout_s
        self._to_ask.append(key)
        return None

    def ask(self) -> None:
        """Send the questions of this step to the shared store."""
        keys, self._to_ask = tuple(self._to_ask), []
        if keys:
            self._readers.submit(self._contains, keys)

    def touch(self, keys: Sequence[BlockHash]) -> None:
        """Note that blocks were used; those unused longest are evicted first."""
        if self.tier.index is not None:
            self.tier.index.touch(keys)

    # --- jobs ---

    def store(self, number: int, keys: Sequence[BlockHash], rows: Sequence[Row]) -> None:
        """Write what the store lacks of `keys`; rows stay as they are until the job is done."""
        now = self._clock()
        job = self._begin(number, keys, is_load=False, now=now)
        written: _Part = []
        if self.tier.refusal(now=now) is None:
            for key, row in zip(keys, rows, strict=True):
                place = self._place_for(key, now)
                if place is not None:
                    written.append((key, place[0], row))
        if self.tier.index is not None:
            self.tier.index.drain_evicted()
        self.tier.num_writing += len(written)
        self._send(job, written, self._writers, self._write)

    def _place_for(self, key: BlockHash, now: float) -> tuple[int | None] | None:
        """Return the block's new slot, `(None,)` where stores need none, None to leave it out."""
        if not self.tier.lacks(key, now=now):
            return None
        if self.tier.index is None:
            self.tier.known.add([key], now=now)  # not written twice
            return (None,)
        slot = self.tier.index.reserve(key)
        return None if slot is None else (slot,)

    def load(self, number: int, keys: Sequence[BlockHash], rows: Sequence[Row]) -> None:
        """Read blocks into rows; a row counts only if its block is among the `good`."""
        now = self._clock()
        job = self._begin(number, keys, is_load=True, now=now)
        wanted: _Part = []
        for key, row in zip(keys, rows, strict=True):
            if not self.tier.has(key, now=now):  # evicted since it was looked up
                job.outcomes[key] = Outcome.MISSING
            else:
                slot = None if self.tier.index is None else self.tier.index.pin(key)
                wanted.append((key, slot, row))
        self._send(job, wanted, self._readers, self._read)

    def take_done(self) -> list[JobDone]:
        """Return the jobs that ended since the last call."""
        while True:
            try:
                self._take_part(*self._came.get_nowait())
            except Empty:
                break
        self._take_answers()
        done, self._done = self._done, []
        return done

    @property
    def is_idle(self) -> bool:
        """True when nothing is on its way and no end of a job is unreported."""
        return not self._jobs and not self._done and not self._asked

    def drain(self) -> None:
        """Wait until every job has ended; `take_done` then returns all of them."""
        while self._jobs:
            self._take_part(*self._came.get())

    def close(self) -> None:
        """Finish what is out, then release the store."""
        self.drain()
        self._readers.shutdown()
        self._writers.shutdown()
        self._store.close()

    def check(self) -> None:
        """Check the index; see the class."""
        if self.tier.index is not None:
            self.tier.index.check()
        assert all(job.num_parts > 0 for job in self._jobs.values()), "a job without parts is out"

    def _begin(self, number: int, keys: Sequence[BlockHash], *, is_load: bool, now: float) -> _Job:
        job = self._jobs[number] = _Job(number, is_load, tuple(keys), now)
        return job

    def _send(
        self,
        job: _Job,
        blocks: _Part,
        threads: ThreadPoolExecutor,
        work: Callable[[_Part], dict[BlockHash, Outcome]],
    ) -> None:
        parts = [blocks[i : i + BLOCKS_PER_PART] for i in range(0, len(blocks), BLOCKS_PER_PART)]
        job.num_parts = len(parts)
        for part in parts:
            threads.submit(self._attempt, job, part, work)
        if not parts:
            self._finish(job)

    def _take_part(self, job: _Job, outcomes: dict[BlockHash, Outcome]) -> None:
        job.outcomes |= outcomes
        job.num_parts -= 1
        now = self._clock()
        (self._note_read if job.is_load else self._note_written)(outcomes, now)
        if job.num_parts == 0:
            self._finish(job)

    def _note_read(self, outcomes: dict[BlockHash, Outcome], now: float) -> None:
        for key, outcome in outcomes.items():
            if self.tier.index is not None:
                self.tier.index.unpin(key)
            if outcome in {Outcome.WRONG, Outcome.MISSING}:
                self.tier.forget(key)
        if Outcome.FAILED in outcomes.values():
            self.tier.reads.failed(now)
        else:
            self.tier.reads.succeeded()

    def _note_written(self, outcomes: dict[BlockHash, Outcome], now: float) -> None:
        self.tier.num_writing -= len(outcomes)
        for key, outcome in outcomes.items():
            if outcome != Outcome.OK:
                self.tier.forget(key)
            elif self.tier.index is not None:
                self.tier.index.commit(key)
        if Outcome.FAILED in outcomes.values():
            self.tier.writes.failed(now)
        else:
            self.tier.writes.succeeded()

    def _finish(self, job: _Job) -> None:
        del self._jobs[job.number]
        good = tuple(key for key in job.keys if job.outcomes.get(key) == Outcome.OK)
        num_failed = sum(outcome != Outcome.OK for outcome in job.outcomes.values())
        seconds = self._clock() - job.started_s
        self._done.append(
            JobDone(job.number, good, num_failed, len(good) * self._block_bytes, seconds)
        )

    def _take_answers(self) -> None:
        now = self._clock()
        while True:
            try:
                keys, found = self._answers.get_nowait()
            except Empty:
                break
            self._note_answer(keys, found, now)
        late = [key for key, deadline in self._asked.items() if deadline <= now]
        for key in late:  # whoever waited has been told no by now
            del self._asked[key]
            self._absent[key] = now + ABSENT_S
        self._absent = {key: until for key, until in self._absent.items() if until > now}

    def _note_answer(
        self, keys: tuple[BlockHash, ...], found: list[bool] | None, now: float
    ) -> None:
        if found is None:
            self.tier.reads.failed(now)
        else:
            self.tier.reads.succeeded()
        for key, is_there in zip(keys, found or [False] * len(keys), strict=True):
            self._asked.pop(key, None)
            if is_there:
                self._absent.pop(key, None)
                self.tier.known.add([key], now=now)
            else:
                self._absent[key] = now + ABSENT_S

    # --- in threads ---

    def _attempt(
        self, job: _Job, part: _Part, work: Callable[[_Part], dict[BlockHash, Outcome]]
    ) -> None:
        try:
            outcomes = work(part)
        except (PeerError, OSError) as error:
            log.warning("%s tier: %s", self.tier.name, error)
            outcomes = _all_failed(part)
        except Exception:
            log.exception("%s tier: a defect of warmturn itself", self.tier.name)
            outcomes = _all_failed(part)
        self._came.put((job, outcomes))

    def _write(self, part: _Part) -> dict[BlockHash, Outcome]:
        if isinstance(self._store, DiskSlab):
            for key, slot, row in part:
                assert slot is not None
                self._store.write(slot, key, row, block_checksum(row, key, self._owner))
        else:
            blocks = [np.frombuffer(row, np.uint8) for _, _, row in part]
            keys = [key for key, _, _ in part]
            sums = [block_checksum(row, key, self._owner) for key, _, row in part]
            self._store.write(keys, blocks, sums)
        return {key: Outcome.OK for key, _, _ in part}

    def _read(self, part: _Part) -> dict[BlockHash, Outcome]:
        if isinstance(self._store, DiskSlab):
            found = {}
            for key, slot, row in part:
                assert slot is not None
                found[key], _ = self._store.read(slot, key, row)
            return found
        blocks = [np.frombuffer(row, np.uint8) for _, _, row in part]
        keys = [key for key, _, _ in part]
        outcomes = [outcome for outcome, _ in self._store.read(keys, blocks)]
        return dict(zip(keys, outcomes, strict=True))

    def _contains(self, keys: tuple[BlockHash, ...]) -> None:
        assert not isinstance(self._store, DiskSlab)
        found: list[bool] | None = None
        try:
            found = self._store.contains(keys)
        except (PeerError, OSError) as error:
            log.warning("%s tier: %s", self.tier.name, error)
        self._answers.put((keys, found))


def _all_failed(part: Iterable[tuple[BlockHash, int | None, Row]]) -> dict[BlockHash, Outcome]:
    return {key: Outcome.FAILED for key, _, _ in part}
