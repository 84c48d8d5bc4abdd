"""The threads that carry out a tier manager's orders."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol, TypeAlias

from warmturn.cache.record import Bytes
from warmturn.cache.transfers import Done, Lookup, Order, Outcome, TierName, Transfer
from warmturn.errors import PeerError
from warmturn.stores.arena import HostArena
from warmturn.stores.slab import DiskSlab
from warmturn.types import BlockHash

__all__ = ["DeviceMemory", "Mover", "SharedStore"]

log = logging.getLogger(__name__)

_Outcomes: TypeAlias = list[Outcome]

LANES = {"up": 1, "down": 1, "disk-read": 4, "disk-write": 2}
LANES |= {"shared-read": 2, "shared-write": 1, "shared-lookup": 1}
"""Threads of each kind of work. Copies within memory gain nothing from a second one; a disk wants
several requests at once; what waits for a slow store must not wait in front of anything else."""


class DeviceMemory(Protocol):
    """The pool's memory, block by block."""

    def copy_out(self, block: int, target: Bytes) -> None:
        """Copy a block to host memory; it is there when this returns."""
        ...

    def copy_in(self, block: int, source: Bytes) -> None:
        """Copy a block from host memory; it can be computed with when this returns."""
        ...


class SharedStore(Protocol):
    """A store several engines write to. All methods raise `PeerError` or `OSError` when it is
    down, and may be called from several threads.
    """

    def contains(self, keys: Sequence[BlockHash]) -> list[bool]:
        """Tell for each block whether it is there."""
        ...

    def write(
        self, keys: Sequence[BlockHash], blocks: Sequence[Bytes], checksums: Sequence[int]
    ) -> None:
        """Store blocks under their keys."""
        ...

    def read(
        self, keys: Sequence[BlockHash], targets: Sequence[Bytes]
    ) -> list[tuple[Outcome, int]]:
        """Fetch blocks, each with its checksum; a target is a block only where its outcome is OK."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Mover:
    """Takes orders, reports each as done, from threads of its own."""

    def __init__(
        self,
        arena: HostArena,
        device: DeviceMemory,
        *,
        on_done: Callable[[Done], None],
        disk: DiskSlab | None = None,
        shared: SharedStore | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`on_done` is called from any of the threads, once per order."""
        self._arena = arena
        self._device = device
        self._disk = disk
        self._shared = shared
        self._on_done = on_done
        self._clock = clock
        self._queues: dict[str, SimpleQueue[Order | None]] = {}
        self._threads: list[threading.Thread] = []
        for lane, num_threads in LANES.items():
            if not self._is_used(lane):
                continue
            self._queues[lane] = SimpleQueue()
            for _ in range(num_threads):
                # Daemons: a store that never answers must not keep the process alive.
                thread = threading.Thread(
                    target=self._work, args=(self._queues[lane],), name=f"tier-{lane}", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def submit(self, orders: Sequence[Order]) -> None:
        """Queue orders; returns at once."""
        for order in orders:
            self._queues[_lane(order)].put(order)

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Finish what is queued, as far as `timeout_s` allows, and release all stores."""
        for lane, queue in self._queues.items():
            for _ in range(LANES[lane]):
                queue.put(None)
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.warning("a tier's store did not answer while closing; what it had is lost")
            return  # a thread may still use the stores
        for store in (self._disk, self._shared):
            if store is not None:
                store.close()

    def _is_used(self, lane: str) -> bool:
        missing = {"disk": self._disk is None, "shared": self._shared is None}
        return not missing.get(lane.partition("-")[0], False)

    def _work(self, queue: "SimpleQueue[Order | None]") -> None:
        while (order := queue.get()) is not None:
            started = self._clock()
            outcomes = self._attempt(order)
            self._on_done(Done(order.number, tuple(outcomes), self._clock() - started))

    def _attempt(self, order: Order) -> _Outcomes:
        try:
            return self._perform(order)
        except (PeerError, OSError) as error:
            log.warning("tier transfer %d failed: %s", order.number, error)
        except Exception:
            log.exception("tier transfer %d failed: a defect of warmturn itself", order.number)
        return [Outcome.FAILED] * len(order.keys)

    def _perform(self, order: Order) -> _Outcomes:
        if isinstance(order, Lookup):
            assert self._shared is not None
            found = self._shared.contains(order.keys)
            return [Outcome.OK if there else Outcome.MISSING for there in found]
        match order.source, order.target:
            case TierName.DEVICE, TierName.HOST:
                return self._down(order)
            case TierName.HOST, TierName.DEVICE:
                return self._up(order)
            case TierName.DISK, TierName.HOST:
                return self._from_disk(order)
            case TierName.SHARED, TierName.HOST:
                return self._from_shared(order)
            case TierName.HOST, TierName.DISK:
                return self._to_disk(order)
            case _:
                return self._to_shared(order)

    def _down(self, order: Transfer) -> _Outcomes:
        for key, block, slot in zip(order.keys, order.from_slots, order.to_slots, strict=True):
            self._device.copy_out(block, self._arena.block(slot))
            self._arena.seal(slot, key)
        return [Outcome.OK] * len(order.keys)

    def _up(self, order: Transfer) -> _Outcomes:
        outcomes = []
        for key, slot, block in zip(order.keys, order.from_slots, order.to_slots, strict=True):
            if self._arena.is_whole(slot, key):
                self._device.copy_in(block, self._arena.block(slot))
                outcomes.append(Outcome.OK)
            else:
                log.warning("host tier: slot %d does not hold block %s", slot, key.hex()[:12])
                outcomes.append(Outcome.WRONG)
        return outcomes

    def _from_disk(self, order: Transfer) -> _Outcomes:
        assert self._disk is not None
        outcomes = []
        for key, place, slot in zip(order.keys, order.from_slots, order.to_slots, strict=True):
            outcome, checksum = self._disk.read(place, key, self._arena.padded(slot))
            self._arena.arrived(slot, checksum)
            outcomes.append(outcome)
        return outcomes

    def _from_shared(self, order: Transfer) -> _Outcomes:
        assert self._shared is not None
        fetched = self._shared.read(order.keys, [self._arena.block(s) for s in order.to_slots])
        for slot, (outcome, checksum) in zip(order.to_slots, fetched, strict=True):
            if outcome == Outcome.OK:
                self._arena.arrived(slot, checksum)
        return [outcome for outcome, _ in fetched]

    def _to_disk(self, order: Transfer) -> _Outcomes:
        assert self._disk is not None
        for key, slot, place in zip(order.keys, order.from_slots, order.to_slots, strict=True):
            checksum = int(self._arena.checksums[slot])
            self._disk.write(place, key, self._arena.padded(slot), checksum)
        return [Outcome.OK] * len(order.keys)

    def _to_shared(self, order: Transfer) -> _Outcomes:
        assert self._shared is not None
        blocks = [self._arena.block(slot) for slot in order.from_slots]
        checksums = [int(self._arena.checksums[slot]) for slot in order.from_slots]
        self._shared.write(order.keys, blocks, checksums)
        return [Outcome.OK] * len(order.keys)


def _lane(order: Order) -> str:
    if isinstance(order, Lookup):
        return "shared-lookup"
    if order.target == TierName.DEVICE:
        return "up"
    if order.source == TierName.DEVICE:
        return "down"
    if order.target == TierName.HOST:
        return f"{order.source}-read"
    return f"{order.target}-write"
