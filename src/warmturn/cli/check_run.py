"""Reads a log through one checker or several, and puts what they found in order.

Conversations that have an id are told apart before anything is known of them, so several
processes can share a log: each reads all of it and checks the conversations that fall to it.
The answer is that of one process, to the last figure.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import merge
from pathlib import Path

from warmturn.check import Checker, CheckReport, ConversationCheck, Settings
from warmturn.check.summary import EndedThread, ThreadOrder, Totals, last_proofs
from warmturn.cli.check_inputs import LogSource, Rendering
from warmturn.cli.check_spool import Spool
from warmturn.formats import BadLine, LoggedRequest

__all__ = ["BadLines", "Reading", "Shard", "in_order", "num_shards", "read_shard"]

MOST_BAD_LINES = 5
"""Bad lines that are kept to be shown; the others are counted."""

_LARGE_BYTES = 2 * 1024 * 1024
"""A log below is checked by one process: others would hardly have begun."""

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


@dataclass(frozen=True, slots=True)
class Shard:
    """Which conversations a process checks: those whose id falls on `index` of `count`."""

    index: int = 0
    count: int = 1

    def has(self, request: LoggedRequest) -> bool:
        """Say whether the request is ours. Requests without an id stay together."""
        name = (request.conversation_id or "").encode(errors="surrogatepass")
        # No checksum: those are linear, and names that differ by a digit would fall together.
        digest = blake2b(name, digest_size=8).digest()
        return int.from_bytes(digest) % self.count == self.index


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
    items: Iterable[LoggedRequest | BadLine],
    rendering: Rendering,
    settings: Settings,
    shard: Shard,
    threads: Spool[EndedThread],
) -> Reading:
    """Check the shard's conversations; write each to `threads` as it ends."""
    checker = Checker(template=rendering.template, tokenizer=rendering.tokenizer, settings=settings)
    bad = BadLines()
    for item in items:
        if isinstance(item, BadLine):
            bad.add(item)
        elif shard.has(item):
            checker.add(item)
        else:
            checker.skip()
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
