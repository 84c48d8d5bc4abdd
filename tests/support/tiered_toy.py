"""A replica over tiers, driven by hand: orders are carried out when the test says so.

Memory is real (numpy), so a block that comes back from the wrong place changes the reply.
"""

import numpy as np

from tests.support.toy_executor import ToyExecutor
from warmturn.blocks.schemes import scheme_named
from warmturn.cache.pool import Pool
from warmturn.cache.tiers import TierManager
from warmturn.cache.transfers import Done, Lookup, Outcome, TierName
from warmturn.replica.replica import Replica
from warmturn.replica.sequence import Submission

BLOCK = 4
BLOCK_BYTES = BLOCK * 8


class PlainStores:
    """Every tier as a dictionary. `spoil(order, key)` may return another outcome than OK: what has
    come to the host by then is rubbish."""

    def __init__(self, memory, shared=None):
        self.memory = memory  # [num_blocks, BLOCK] int64
        self.places = {TierName.HOST: {}, TierName.DISK: {}}
        self.shared = {} if shared is None else shared
        self.spoil = lambda order, key: None
        self.seconds = 0.001

    def carry_out(self, order):
        outcomes = [self._move(order, i) for i in range(len(order.keys))]
        return Done(order.number, tuple(outcomes), self.seconds)

    def _move(self, order, i):
        key = order.keys[i]
        spoilt = self.spoil(order, key)
        if isinstance(order, Lookup):
            return spoilt or (Outcome.OK if key in self.shared else Outcome.MISSING)
        if spoilt is None:
            found = self._read(order, i, key)
            if found is None:
                return Outcome.MISSING
            if found[0] != key:
                return Outcome.WRONG
            self._write(order, i, key, found[1])
            return Outcome.OK
        if order.target == TierName.HOST:  # half a block arrived before it went wrong
            self._write(order, i, key, np.full(BLOCK, -7))
        return spoilt

    def _read(self, order, i, key):
        if order.source == TierName.DEVICE:
            return key, self.memory[order.from_slots[i]].copy()
        if order.source == TierName.SHARED:
            return self.shared.get(key)
        return self.places[order.source].get(order.from_slots[i])

    def _write(self, order, i, key, data):
        if order.target == TierName.DEVICE:
            self.memory[order.to_slots[i]] = data
        elif order.target == TierName.SHARED:
            self.shared[key] = (key, data)
        else:
            self.places[order.target][order.to_slots[i]] = (key, data)


class TieredRun:
    """One replica with tiers, a toy executor, and whatever the test lets happen."""

    def __init__(
        self,
        num_blocks=8,
        *,
        host_slots=64,
        disk_slots=None,
        shared=None,
        announce=False,
        **options,
    ):
        self.tiers = TierManager(
            block_bytes=BLOCK_BYTES,
            block_size=BLOCK,
            host_slots=host_slots,
            disk_slots=disk_slots,
            has_shared=shared is not None,
        )
        self.replica = Replica(
            Pool(num_blocks, BLOCK),
            scheme=scheme_named("native"),
            model="toy",
            max_model_len=1000,
            tiers=self.tiers,
            announce=announce,
            **options,
        )
        self.toy = ToyExecutor(num_blocks, BLOCK)
        self.stores = PlainStores(self.toy.memory, shared)
        self.replies, self.turns, self.events = {}, {}, []
        self.clock = 0.0
        self.pending = []
        self.token_s = 0.001
        self.block_s = 0.00001

    def submit(self, name, prompt, max_tokens=4, **fields):
        tokens = np.array(prompt, np.int32)
        self.replica.submit(
            Submission(name, tokens, max_tokens=max_tokens, **fields), now=self.clock
        )

    def collect(self):
        self.pending += self.replica.take_orders()

    def move(self, index=0):
        """Carry out one pending order; False when there is none."""
        self.collect()
        if not self.pending:
            return False
        order = self.pending.pop(index % len(self.pending))
        self.clock += self.block_s * len(order.keys)
        self.events += self.replica.transferred(self.stores.carry_out(order), now=self.clock)
        self.replica.check()
        return True

    def settle(self):
        while self.move():
            pass

    def step(self):
        """Plan and run one step; None when there is nothing to compute."""
        step = self.replica.plan(now=self.clock)
        self.collect()
        if step is None:
            return None
        self.clock += self.token_s * step.num_tokens
        report = self.replica.complete(self.toy.execute(step), now=self.clock)
        self.collect()
        self.events += report.events
        for progress in report.progress:
            name = progress.sampled.request_id
            self.replies.setdefault(name, []).append(progress.sampled.token_id)
            if progress.turn is not None:
                self.turns[name] = progress.turn
        self.replica.check()
        return step

    def run(self):
        """Move everything at once whenever there is something to move, until all is done."""
        for _ in range(5000):
            self.settle()
            left = self.replica.num_waiting + self.replica.num_running
            if self.step() is None and not self.pending and not left:
                return self
            self.clock += 0.001
        raise AssertionError("the replica never came to rest")

    def ask(self, name, prompt, max_tokens=4, **fields):
        self.submit(name, prompt, max_tokens, **fields)
        self.run()
        return self.replies[name]

    def forget_device(self):
        """Evict everything from the pool."""
        self.settle()
        assert self.replica.reset_prefix_cache()
        self.toy.memory[:] = -1
