"""Reads a log through one checker or several, and puts what they found in order.

Conversations that have an id are told apart before anything is known of them, so several
processes can share a log: each reads all of it, but of a record of another no more than the id
where the format allows, and checks the conversations that fall to it.
The answer is that of one process, to the last figure.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import merge
from pathlib import Path

from warmturn.check import Checker, CheckReport, ConversationCheck, Settings
from warmturn.check.summary import EndedThread, ThreadOrder, Totals, last_proofs
from warmturn.cli.check_inputs import LogSource, Rendering
from warmturn.cli.check_spool import Spool
from warmturn.formats import BadLine, LoggedRequest
from warmturn.formats.format import Item

__all__ = ["BadLines", "Reading", "Shard", "all_bad", "in_order", "num_shards", "read_shard"]

MOST_BAD_LINES = 5
"""Bad lines that are kept to be shown; the others are counted."""

_LARGE_BYTES = 2 * 1024 * 1024
"""A log below is checked by one process: others would hardly have begun."""

_NUM_GROUPS = 4096
"""Of conversations, by their ids; a group is checked by one process."""

_MOST_SHARDS = 8
"""Each process reads the whole log, a tenth of the work: more of them hardly help."""


@dataclass(slots=True)
class BadLines:
    """Counts the lines that could not be read, and keeps the first."""

    num_lines: int = 0
    kept: list[BadLine] = field(default_factory=list)

    def add(self, line: BadLine) -> None:
        """Count one more."""
        self.num_lines += 1
        if len(self.kept) < MOST_BAD_LINES:
            self.kept.append(line)


@dataclass(slots=True)
class Shard:
    """Which conversations a process checks: share `index` of `count`.

    Every process sees every request in the same order and so divides them alike: a new group
    of conversations goes to the share that has had the least so far.
    """

    index: int = 0
    count: int = 1
    _share_of: dict[int, int] = field(default_factory=dict)
    _sizes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._sizes = [0] * self.count

    def has(self, conversation_id: str | None, size: int) -> bool:
        """Say whether a record is ours; to be asked once for each. Those without an id stay together.

        `size` in any unit that is the same for all records.
        """
        group = _group(conversation_id or "")
        share = self._share_of.get(group)
        if share is None:
            share = self._share_of[group] = self._sizes.index(min(self._sizes))
        self._sizes[share] += size
        return share == self.index


def _group(conversation_id: str) -> int:
    """Return one of `_NUM_GROUPS`: who has what must not grow with the log."""
    # No checksum: those are linear, and names that differ by a digit would fall together.
    digest = blake2b(conversation_id.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) % _NUM_GROUPS


@dataclass(slots=True)
class Reading:
    """What one pass over a log found in its shard."""

    threads: Spool[EndedThread]
    proofs: dict[str, list[int]]
    bad: BadLines


def num_shards(source: LogSource, jobs: int | None) -> int:
    """Return how many processes to use: `jobs`, else the cores for a large log with ids.

    Where others keep all cores busy it is one: several do the same reading for a share of the time.
    """
    if jobs == 1 or not source.is_files or not _can_fork():
        return 1
    if jobs is not None:
        return jobs
    num_cores = _num_cores()
    if source.num_bytes < _LARGE_BYTES or _num_others_running() >= num_cores:
        return 1
    return min(_MOST_SHARDS, num_cores) if source.has_conversation_ids() else 1


def read_shard(
    items: Iterable[Item], rendering: Rendering, settings: Settings, threads: Spool[EndedThread]
) -> Reading:
    """Check the conversations in `items`; write each to `threads` as it ends."""
    checker = Checker(template=rendering.template, tokenizer=rendering.tokenizer, settings=settings)
    bad = BadLines()
    for item in items:
        if isinstance(item, LoggedRequest):
            checker.add(item)
        else:  # counted, so that all processes have the same numbers
            checker.skip()
        if isinstance(item, BadLine):
            bad.add(item)
        for thread in checker.take_ended():
            threads.add(thread, number=thread.number)
    for thread in checker.take_all():
        threads.add(thread, number=thread.number)
    return Reading(threads, checker.proofs, bad)


def in_order(readings: list[Reading]) -> CheckReport:
    """Return the report on all shards together; its conversations lie on disk."""
    conversations = _InOrder(readings)
    totals = Totals()
    for conversation in conversations:
        totals.add(conversation)
    return totals.report(conversations)


def all_bad(readings: list[Reading], paths: Sequence[str]) -> BadLines:
    """Return the bad lines of all shards; those that are kept are the first of the log."""
    kept = [line for reading in readings for line in reading.bad.kept]
    kept.sort(key=lambda line: (paths.index(line.source), line.line))
    return BadLines(sum(reading.bad.num_lines for reading in readings), kept[:MOST_BAD_LINES])


class _InOrder:
    """The conversations of several readings, put in the order of the log each time they are read."""

    def __init__(self, readings: list[Reading]) -> None:
        self._spools = [reading.threads for reading in readings]
        self._last_proof_of = last_proofs(reading.proofs for reading in readings)

    def __len__(self) -> int:
        return sum(map(len, self._spools))

    def __iter__(self) -> Iterator[ConversationCheck]:
        order = ThreadOrder(self._last_proof_of)
        return map(order.place, merge(*self._spools, key=lambda thread: thread.number))


def _can_fork() -> bool:
    """Only Linux has a fork that libraries survive."""
    return sys.platform == "linux"


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


def _num_others_running() -> int:
    """Return how many threads of others run, or wait for a core, at this moment."""
    running = Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0]
    return int(running) - 1
