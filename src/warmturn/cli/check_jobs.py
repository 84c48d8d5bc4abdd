"""Several processes that check one log, forked from this one so that nothing is loaded twice."""

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warmturn.check import CheckReport, Settings
from warmturn.check.summary import EndedThread
from warmturn.cli.check_inputs import LogSource, Rendering, progress_console
from warmturn.cli.check_run import (
    BadLines,
    Reading,
    Shard,
    all_bad,
    in_order,
    num_shards,
    read_shard,
)
from warmturn.cli.check_spool import Spool, SpoolIndex
from warmturn.errors import InvalidInput, PeerError, WarmturnError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["check_log"]

_NEW_OBJECTS = 50_000
"""Made between two looks for garbage: some ten requests; the interpreter's own is 700."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a process sends back; its threads lie in the file it inherited."""

    index: SpoolIndex
    proofs: dict[str, list[int]]
    bad: BadLines


def check_log(
    source: LogSource, rendering: Rendering, settings: Settings, *, jobs: int | None = 1
) -> tuple[CheckReport, BadLines]:
    """Return the report on `source`, and the lines of which nothing can be said.

    `jobs` processes; None: one for each core where that is worth it. The report is the same.
    Raises `InvalidInput` for what cannot be read.
    """
    count = num_shards(source, jobs)
    with _seldom_collected():
        if count == 1:
            items = source.read(progress_console())
            readings = [read_shard(items, rendering, settings, Spool())]
        else:
            readings = _readings(source, rendering, settings, count)
        return in_order(readings), all_bad(readings, source.paths)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Look for cycles of garbage seldom: there are few, and a request is thousands of objects.

    A quarter of the time goes otherwise. What is there already is left alone, so that a process
    forked from this one need not copy it either.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


def _readings(
    source: LogSource, rendering: Rendering, settings: Settings, count: int
) -> list[Reading]:
    def read(shard: Shard, threads: Spool[EndedThread]) -> Reading:
        console = progress_console() if shard.index == 0 else None
        items = source.read_share(shard.has, console)
        return read_shard(items, rendering, settings, threads)

    context = multiprocessing.get_context("fork")
    spools = [Spool[EndedThread]() for _ in range(count)]
    receivers, processes = [], []
    for index, spool in enumerate(spools):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=_work, args=(read, Shard(index, count), spool, sender), daemon=True
        )
        process.start()
        sender.close()
        receivers.append(receiver)
        processes.append(process)
    try:
        answers = [_answer(receiver) for receiver in receivers]
    finally:
        for process in processes:
            process.terminate()
            process.join()
    for spool, answer in zip(spools, answers, strict=True):
        spool.take_over(answer.index)
    return [Reading(s, a.proofs, a.bad) for s, a in zip(spools, answers, strict=True)]


def _work(
    read: Callable[[Shard, Spool[EndedThread]], Reading],
    shard: Shard,
    spool: Spool[EndedThread],
    sender: "Connection[Any, Any]",
) -> None:
    """Run in a child: check a shard and send what was found, or what is wrong."""
    # One thread each: the tokenizer's own would stand in each other's way, and do not outlive fork.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        found = read(shard, spool)
        sender.send(_Answer(spool.handed_over(), found.proofs, found.bad))
    except WarmturnError as error:
        sender.send(str(error))


def _answer(receiver: "Connection[Any, Any]") -> _Answer:
    try:
        answer = receiver.recv()
    except EOFError as error:
        raise PeerError(
            "a process that checks a part of the log ended without an answer; was it out of "
            "memory? --jobs 1 uses one process"
        ) from error
    if isinstance(answer, str):
        raise InvalidInput(answer)
    assert isinstance(answer, _Answer)
    return answer
