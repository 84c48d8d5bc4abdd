"""What moves where between the device and the tiers below it: host, disk, shared store.

    device --store--> host --store--> disk, shared      when a block fills, then in the background
    device <--load--- host <--fetch-- disk, shared      when a request wants it

Everything passes through the host: what a slow store delivers late lands there and nowhere else.
This decides; who copies is the driver (`stores` here, vLLM's workers, a simulator's clock). The
driver takes `orders`, does them in any order, and reports each with `complete`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from warmturn.cache.learned_times import PrefillTime, TransferTime
from warmturn.cache.loading import BlockState, Load
from warmturn.cache.lower_tier import LowerTier
from warmturn.cache.reload import ReloadChoice, RunCost, choose
from warmturn.cache.tier_index import TierIndex
from warmturn.cache.tier_stats import TierStats
from warmturn.cache.transfers import Chain, Done, Lookup, Order, Outcome, TierName, Transfer
from warmturn.errors import BrokenInvariant
from warmturn.types import BlockHash

__all__ = ["TierChange", "TierManager"]

BLOCKS_PER_TRANSFER = 8
"""Small enough that a load's first blocks are copied up while its next ones are read."""
BLOCKS_IN_FLIGHT = 32
"""Most blocks one load reads at a time: four threads stay busy, other loads get their turn."""
PATIENCE_SHARE = 0.1
"""Share of the time it would take to compute a prompt that its look-up may take."""

TierChange = tuple[str, TierName, BlockHash]
"""(`stored` or `removed`, tier, block)."""


class TierManager:
    """One replica's tiers below the device. Block contents are opaque runs of equal length.

    Invariants, checked by `check()` beside those of the indexes:

    1. Every order that is out is known, and its host slots are pinned or reserved.
    2. Only content that is ready is read; only reserved slots are written.
    3. A load is known as long as one of its blocks is on its way.
    """

    def __init__(
        self,
        *,
        block_bytes: int,
        block_size: int,
        host_slots: int,
        disk_slots: int | None = None,
        has_shared: bool = False,
        max_queued_bytes: int = 256 * 2**20,
        lookup_timeout_s: float = 0.1,
    ) -> None:
        """`host_slots` blocks of host memory, at least one. `max_queued_bytes` bounds what waits
        to be written to each slow tier: beyond it blocks are not written, and counted.
        """
        self.block_bytes = block_bytes
        self.block_size = block_size
        self.host = TierIndex(host_slots)
        most = max(1, max_queued_bytes // block_bytes)
        self.lower: dict[TierName, LowerTier] = {}
        if disk_slots is not None:
            self.lower[TierName.DISK] = LowerTier(
                TierName.DISK,
                num_slots=disk_slots,
                block_bytes=block_bytes,
                max_queued_blocks=most,
            )
        if has_shared:
            self.lower[TierName.SHARED] = LowerTier(
                TierName.SHARED, block_bytes=block_bytes, max_queued_blocks=most
            )
        self.host_time = TransferTime.assumed_for(TierName.HOST, typical_bytes=16.0 * block_bytes)
        self.prefill = PrefillTime()
        self.stats = TierStats()
        self._lookup_timeout_s = lookup_timeout_s
        self._number = 0
        self._orders: list[Order] = []
        self._out: dict[int, Order] = {}
        self._copies: dict[int, tuple[Load, tuple[int, ...]]] = {}  # order -> load, its blocks
        self._readers: defaultdict[BlockHash, list[tuple[Load, int]]] = defaultdict(list)
        self._loads: dict[int, Load] = {}
        self._changes: list[TierChange] = []

    # --- what is where ---

    def restore_disk(self, found: Iterable[tuple[BlockHash, int]]) -> None:
        """Take over what the disk holds at start, oldest first."""
        index = self.lower[TierName.DISK].index
        assert index is not None
        index.restore(found)

    def locate(self, chain: Chain, *, first: int, now: float) -> list[TierName]:
        """Return where blocks `first`, `first + 1` … of a chain lie, up to the first gap."""
        places: list[TierName] = []
        for key in chain[first:]:
            place = self._place(key, now)
            if place is None:
                break
            places.append(place)
        return places

    def _place(self, key: BlockHash, now: float) -> TierName | None:
        if self.host.is_ready(key) or self.host.is_coming(key):
            return TierName.HOST
        for name, tier in self.lower.items():
            if tier.has(key, now=now) and tier.may_read(now=now):
                return name
        return None

    # --- looking up in the shared store ---

    def look_up(self, chain: Chain, *, first: int, now: float) -> int | None:
        """Ask the shared store for what no tier of ours has; return the order to wait for.

        None where there is nothing to ask, or the store is left alone for now.
        """
        shared = self.lower.get(TierName.SHARED)
        if shared is None:
            return None
        start = first + len(self.locate(chain, first=first, now=now))
        if start >= len(chain) or not shared.reads.allows(now):
            return None
        order = Lookup(self._next_number(), tuple(chain[start:]))
        self._give(order)
        return order.number

    def is_out(self, number: int) -> bool:
        """Tell whether an order is still unanswered."""
        return number in self._out

    def patience_s(self, first: int, num_tokens: int, *, now: float) -> float:
        """Return how long a request may wait for its look-up."""
        seconds = self.prefill.predict(first * self.block_size, num_tokens, now=now)
        return min(self._lookup_timeout_s, PATIENCE_SHARE * seconds)

    # --- storing ---

    def store(self, chain: Chain, device_blocks: Sequence[int], *, first: int) -> int | None:
        """Write blocks `first`, `first + 1` … through to the host; return the order's number.

        `device_blocks[i]` holds block `first + i`; it must stay as it is until the order is done.
        None where there is nothing to write: all is there, or there is no room.
        """
        keys, sources, slots = [], [], []
        for key, block in zip(chain[first:], device_blocks, strict=True):
            if key in self.host:
                continue
            slot = self.host.reserve(key)
            if slot is None:
                self.stats.skipped[TierName.HOST, "full"] += 1
                continue
            keys.append(key)
            sources.append(block)
            slots.append(slot)
        self._note_evicted(TierName.HOST, self.host)
        self.host.touch(chain)
        if not keys:
            return None
        return self._transfer(TierName.DEVICE, TierName.HOST, keys, sources, slots)

    def touch(self, chain: Chain, *, now: float) -> None:
        """Note that a chain was used, and write down what slow tiers still lack of it."""
        self.host.touch(chain)
        for tier in self.lower.values():
            if tier.index is not None:
                tier.index.touch(chain)
        self._write_down([key for key in chain if self.host.is_ready(key)], now)

    def _write_down(self, keys: Sequence[BlockHash], now: float) -> None:
        for tier in self.lower.values():
            lacking = [key for key in keys if tier.lacks(key, now=now)]
            for start in range(0, len(lacking), BLOCKS_PER_TRANSFER):
                self._write_to(tier, lacking[start : start + BLOCKS_PER_TRANSFER], now)

    def _write_to(self, tier: LowerTier, keys: Sequence[BlockHash], now: float) -> None:
        refusal = tier.refusal(now=now)
        if refusal is not None:
            self.stats.skipped[tier.name, refusal] += len(keys)
            return
        written, slots = [], []
        for key in keys:
            slot = None if tier.index is None else tier.index.reserve(key)
            if slot is None and tier.index is not None:
                self.stats.skipped[tier.name, "full"] += 1
                continue
            written.append(key)
            if slot is not None:
                slots.append(slot)
        if tier.index is not None:
            self._note_evicted(tier.name, tier.index)
        else:  # ours until the store says otherwise: the same block is not written twice
            tier.known.add(written, now=now)
        if written:
            tier.num_writing += len(written)
            sources = [self.host.pin(key) for key in written]
            self._transfer(TierName.HOST, tier.name, written, sources, slots)

    # --- loading ---

    def plan_load(
        self, chain: Chain, *, first: int, num_tokens: int, now: float
    ) -> tuple[ReloadChoice, list[TierName]]:
        """Decide what of a prompt is loaded; blocks before `first` are on the device.

        Returns the choice, and where blocks `first`, `first + 1` … lie. Changes nothing but counts.
        """
        last = (num_tokens - 1) // self.block_size
        places = self.locate(chain[:last], first=first, now=now)
        names = list(TierName)
        choice = choose(
            np.array([names.index(place) for place in places], np.int8),
            {names.index(place): self._cost(place, now) for place in set(places)},
            first=first,
            num_tokens=num_tokens,
            block_size=self.block_size,
            prefill=self.prefill.rates(now=now),
        )
        if places:
            split = "split" if choice.split > first else "load"
            self.stats.decisions[split if choice.loads else "recompute"] += 1
        return choice, places

    def _cost(self, place: TierName, now: float) -> RunCost:
        time = self._time_of(place)
        fixed_s, s_per_byte = time.line(now=now)
        queued = 0 if place == TierName.HOST else self.lower[place].num_reading
        per_block = s_per_byte * self.block_bytes
        return RunCost(wait_s=fixed_s + queued * per_block, s_per_block=per_block)

    def _time_of(self, place: TierName) -> TransferTime:
        return self.host_time if place == TierName.HOST else self.lower[place].time

    def load(
        self,
        chain: Chain,
        places: Sequence[TierName],
        *,
        split: int,
        device_blocks: Sequence[int] | None,
        predicted_s: float,
        now: float,
    ) -> Load:
        """Begin to load blocks `split`, `split + 1` …, which lie in `places`.

        `device_blocks[i]` is where block i of the chain goes; None to load to the host only. The
        blocks from `split` on belong to the load until it is over: nobody else writes there unless
        it has `give_up` them.
        """
        load = Load(
            chain,
            places,
            split=split,
            device_blocks=device_blocks,
            started_s=now,
            predicted_s=predicted_s,
        )
        self._loads[id(load)] = load
        self.host.touch(chain)
        for name in set(places) - {TierName.HOST}:
            self.lower[name].num_reading += list(places).count(name)
        self._feed(load, now)
        self._settle(load, now)
        return load

    def cancel(self, load: Load, *, now: float) -> None:
        """Want nothing of a load any more; what is being copied is still being copied."""
        load.is_cancelled = True
        self._settle(load, now)

    def give_up(self, load: Load, start: int, stop: int, *, now: float) -> None:
        """Compute blocks `[start, stop)` instead of waiting for them any longer.

        That they are late is learned at once: the next request need not find out by waiting.
        """
        self.stats.num_given_up += stop - start
        for name in {load.source(block) for block in range(start, stop)} - {TierName.HOST}:
            num_bytes = (load.num_loaded(name) + stop - start) * self.block_bytes
            self.lower[name].time.observe(num_bytes, now - load.started_s, now=now)
        load.give_up(start, stop)
        self._settle(load, now)

    def _feed(self, load: Load, now: float) -> None:
        """Ask for as many of a load's next blocks as may be in flight."""
        up: list[int] = []
        reads: dict[TierName, list[int]] = {}
        while load.todo and load.num_reading < BLOCKS_IN_FLIGHT:
            block = load.todo[-1]
            if not load.is_wanted(block):
                load.todo.pop()
                continue
            key, source = load.chain[block], load.source(block)
            if self.host.is_ready(key):
                up.append(load.todo.pop())
            elif self.host.is_coming(key):  # for somebody else: one read serves all
                self._await(load, load.todo.pop())
            elif key in self.host or not self._is_below(source, key, now):
                load.move(load.todo.pop(), BlockState.LEFT)  # lost since it was located
            elif self.host.reserve(key) is None:
                break  # every slot is in use: the next completion feeds again
            else:
                reads.setdefault(source, []).append(block)
                self._await(load, load.todo.pop())
        self._note_evicted(TierName.HOST, self.host)
        self._copy_up(load, up)
        for source, blocks in reads.items():
            for start in range(0, len(blocks), BLOCKS_PER_TRANSFER):
                part = blocks[start : start + BLOCKS_PER_TRANSFER]
                self._read(source, [load.chain[block] for block in part])

    def _is_below(self, source: TierName, key: BlockHash, now: float) -> bool:
        return source in self.lower and self.lower[source].has(key, now=now)

    def _await(self, load: Load, block: int) -> None:
        self._readers[load.chain[block]].append((load, block))
        load.num_reading += 1

    def _read(self, source: TierName, keys: list[BlockHash]) -> None:
        index = self.lower[source].index
        from_slots = [] if index is None else [index.pin(key) for key in keys]
        to_slots = [self.host.slot_of(key) for key in keys]
        self._transfer(source, TierName.HOST, keys, from_slots, to_slots, is_urgent=True)

    def _copy_up(self, load: Load, blocks: Sequence[int]) -> None:
        """Copy blocks that are ready on the host to the device, or be done where there is none."""
        if load.device_blocks is None:
            for block in blocks:
                load.move(block, BlockState.LOADED)
            return
        for start in range(0, len(blocks), BLOCKS_PER_TRANSFER):
            part = blocks[start : start + BLOCKS_PER_TRANSFER]
            keys = [load.chain[block] for block in part]
            for block in part:
                load.move(block, BlockState.COPYING)
            number = self._transfer(
                TierName.HOST,
                TierName.DEVICE,
                keys,
                [self.host.pin(key) for key in keys],
                [load.device_blocks[block] for block in part],
                is_urgent=True,
            )
            self._copies[number] = (load, tuple(part))

    # --- what the driver did ---

    def take_orders(self) -> list[Order]:
        """Return the orders given since the last call."""
        orders, self._orders = self._orders, []
        return orders

    def take_changes(self) -> list[TierChange]:
        """Return what became readable in a tier of ours or ceased to be, since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def complete(self, done: Done, *, now: float) -> None:
        """Take in the end of an order, and give those that follow from it."""
        order = self._out.pop(done.number, None)
        if order is None:
            raise BrokenInvariant(f"order {done.number} was reported done and is not out")
        if isinstance(order, Lookup):
            self._looked_up(order, done, now)
            return
        self._count(order, done)
        if order.target == TierName.HOST:
            self._arrived(order, done, now)
        elif order.target == TierName.DEVICE:
            self._copied_up(order, done)
        else:
            self._written(order, done, now)
        for load in [*self._loads.values()]:
            self._feed(load, now)
            self._settle(load, now)

    def _looked_up(self, order: Lookup, done: Done, now: float) -> None:
        shared = self.lower[TierName.SHARED]
        if Outcome.FAILED in done.outcomes:
            shared.reads.failed(now)
            self.stats.lookups["failed"] += 1
            return
        shared.reads.succeeded()
        self.stats.lookups["answered"] += 1
        found = (k for k, o in zip(order.keys, done.outcomes, strict=True) if o == Outcome.OK)
        shared.known.add(found, now=now)

    def _arrived(self, order: Transfer, done: Done, now: float) -> None:
        """Blocks have come to the host, from the device or from below."""
        came = [key for key, o in zip(order.keys, done.outcomes, strict=True) if o == Outcome.OK]
        below = self.lower.get(order.source)
        if below is not None:
            self._note_read(below, order, done, now)
        for key, outcome in zip(order.keys, done.outcomes, strict=True):
            if outcome == Outcome.OK:
                self.host.commit(key)
                self._changes.append(("stored", TierName.HOST, key))
            else:
                self.host.remove(key)
        self.host.touch(came)
        for key in order.keys:
            for load, block in self._readers.pop(key, ()):
                self._hand_over(load, block, is_there=self.host.is_ready(key))
        self._write_down(came, now)

    def _hand_over(self, load: Load, block: int, *, is_there: bool) -> None:
        load.num_reading -= 1
        if not load.is_wanted(block):
            return
        if is_there:
            self._copy_up(load, [block])
        else:
            load.move(block, BlockState.LEFT)

    def _note_read(self, tier: LowerTier, order: Transfer, done: Done, now: float) -> None:
        for key, outcome in zip(order.keys, done.outcomes, strict=True):
            if tier.index is not None:
                tier.index.unpin(key)
            if outcome in {Outcome.WRONG, Outcome.MISSING}:
                self._forget(tier, key)
        if Outcome.FAILED in done.outcomes:
            tier.reads.failed(now)
        else:
            tier.reads.succeeded()

    def _copied_up(self, order: Transfer, done: Done) -> None:
        load, blocks = self._copies.pop(order.number)
        for key, block, outcome in zip(order.keys, blocks, done.outcomes, strict=True):
            is_good = outcome == Outcome.OK
            load.move(block, BlockState.LOADED if is_good else BlockState.LEFT)
            self.host.unpin(key)
            if not is_good and self.host.is_ready(key):
                self.host.remove(key)
                self._changes.append(("removed", TierName.HOST, key))

    def _written(self, order: Transfer, done: Done, now: float) -> None:
        tier = self.lower[order.target]
        tier.num_writing -= len(order.keys)
        for key, outcome in zip(order.keys, done.outcomes, strict=True):
            self.host.unpin(key)
            if outcome != Outcome.OK:
                tier.forget(key)
            elif tier.index is not None:
                tier.index.commit(key)
                self._changes.append(("stored", tier.name, key))
        if Outcome.FAILED in done.outcomes:
            tier.writes.failed(now)
        else:
            tier.writes.succeeded()
        if tier.index is not None:
            tier.index.touch(order.keys)

    def _count(self, order: Transfer, done: Done) -> None:
        num_ok = done.outcomes.count(Outcome.OK)
        num_bytes = num_ok * self.block_bytes
        self.stats.moved(order.source, order.target, num_ok, num_bytes, done.seconds)
        place = order.target if order.target in self.lower else order.source
        for outcome in done.outcomes:
            if outcome != Outcome.OK:
                self.stats.problems[place, outcome] += 1

    # --- the end of a load ---

    def _settle(self, load: Load, now: float) -> None:
        """When a load is over, learn from it."""
        if id(load) not in self._loads or not load.is_over:
            return
        del self._loads[id(load)]
        for name in set(load.sources):
            if name in self.lower:
                self.lower[name].num_reading -= load.sources.count(name)
            num_blocks = load.num_loaded(name)
            if num_blocks and not load.is_cancelled and load.device_blocks is not None:
                num_bytes = num_blocks * self.block_bytes
                self._time_of(name).observe(num_bytes, now - load.started_s, now=now)

    def judge(self, choice: ReloadChoice, actual_s: float) -> None:
        """Note what a prompt took, from its admission to its first token, after a choice."""
        best_s = min(choice.recompute_s, choice.load_all_s)
        self.stats.predicted_s += choice.predicted_s
        self.stats.actual_s += actual_s
        self.stats.best_s += best_s
        self.stats.regret_s += max(actual_s - best_s, 0.0)

    def _forget(self, tier: LowerTier, key: BlockHash) -> None:
        if tier.lacks(key, now=0.0):
            return
        tier.forget(key)
        if tier.index is not None:
            self._changes.append(("removed", tier.name, key))

    def _note_evicted(self, name: TierName, index: TierIndex) -> None:
        self._changes.extend(("removed", name, key) for key in index.drain_evicted())

    # --- orders ---

    def _transfer(
        self,
        source: TierName,
        target: TierName,
        keys: Sequence[BlockHash],
        from_slots: Sequence[int],
        to_slots: Sequence[int],
        *,
        is_urgent: bool = False,
    ) -> int:
        order = Transfer(
            self._next_number(),
            source,
            target,
            tuple(keys),
            tuple(int(slot) for slot in from_slots),
            tuple(int(slot) for slot in to_slots),
            is_urgent=is_urgent,
        )
        self._give(order)
        return order.number

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _give(self, order: Order) -> None:
        self._out[order.number] = order
        self._orders.append(order)

    # --- upkeep ---

    @property
    def is_idle(self) -> bool:
        """True when nothing is on its way."""
        return not self._out and not self._loads

    def clear(self) -> None:
        """Forget what is on the host and on disk; what is on its way arrives all the same."""
        self.host.clear()
        for tier in self.lower.values():
            tier.clear()

    def check(self) -> None:
        """Raise `BrokenInvariant` naming the first invariant that does not hold."""
        indexes: list[TierIndex] = [self.host]
        indexes += [t.index for t in self.lower.values() if t.index is not None]
        for index in indexes:
            index.check()
        for order in self._out.values():
            if isinstance(order, Transfer):
                self._check_order(order)
        copying = {id(load) for load, _ in self._copies.values()}
        _hold(3, not any(load.is_over for load in self._loads.values()), "a load that is over")
        _hold(3, copying <= self._loads.keys(), "a copy of a load that is gone")

    def _check_order(self, order: Transfer) -> None:
        slots = {TierName.HOST: self.host}
        slots |= {n: t.index for n, t in self.lower.items() if t.index is not None}
        for name, given in ((order.source, order.from_slots), (order.target, order.to_slots)):
            if name in slots:
                held = tuple(slots[name].slot_of(key) for key in order.keys)
                _hold(1, held == given, f"slots of order {order.number} in {name}")
        for key in order.keys:
            if order.source in slots:
                _hold(2, slots[order.source].is_pinned(key), f"{order.source} slot being read")
            if order.target in slots:
                _hold(2, slots[order.target].is_coming(key), f"{order.target} slot being written")


def _hold(number: int, holds: bool, what: str) -> None:
    if not holds:
        raise BrokenInvariant(f"tier invariant {number} does not hold: {what}")
