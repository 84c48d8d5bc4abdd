"""The toy replica over real stores: arena, slab, folder, Redis, moved by real threads."""

import queue

import numpy as np

from tests.support.tiered_toy import BLOCK_BYTES, TieredRun
from warmturn.cache.fingerprint import Fingerprint
from warmturn.cache.transfers import TierName
from warmturn.stores.arena import HostArena
from warmturn.stores.mover import Mover
from warmturn.stores.opening import open_shared
from warmturn.stores.slab import DiskSlab


def fingerprint(model="toy", **changes):
    fields = {
        "weights": "w", "kv_dtype": "int64", "layout": "rows", "block_size": 4, "num_layers": 1,
        "num_kv_heads": 1, "head_dim": 1, "rope": "none", "hash_scheme": "native",
    }  # fmt: skip
    return Fingerprint(model=model, **(fields | changes))


class ToyDevice:
    """The toy executor's memory as blocks of bytes."""

    def __init__(self, memory):
        self._blocks = memory.view(np.uint8).reshape(len(memory), -1)

    def copy_out(self, block, target):
        np.copyto(target, self._blocks[block])

    def copy_in(self, block, source):
        np.copyto(self._blocks[block], source)


class StoredRun(TieredRun):
    """A `TieredRun` whose orders real stores carry out. Close it."""

    def __init__(self, num_blocks=8, *, folder=None, url=None, verifies=True, **options):
        owner = fingerprint()
        self.slab = None
        if folder is not None:
            slots = options.pop("disk_slots")
            self.slab = DiskSlab(
                folder,
                num_bytes=4096 * (slots + 1),
                block_bytes=BLOCK_BYTES,
                fingerprint=owner,
                verifies=verifies,
            )
            options["disk_slots"] = self.slab.num_slots
        shared = None if url is None else open_shared(url, owner.digest, verifies=verifies)
        super().__init__(num_blocks, shared=None if url is None else {}, **options)
        if self.slab is not None:
            self.tiers.restore_disk(self.slab.found())
        self.arena = HostArena(
            self.tiers.host.num_slots, BLOCK_BYTES, owner.digest, verifies=verifies
        )
        self._done = queue.Queue()
        self._num_out = 0
        self.mover = Mover(
            self.arena,
            ToyDevice(self.toy.memory),
            on_done=self._done.put,
            disk=self.slab,
            shared=shared,
        )
        self.wait_s = 10.0

    def move(self, index=0):
        """Pass orders on and take in one that is done, in whatever order they end."""
        self.collect()
        self._num_out += len(self.pending)
        self.mover.submit(self.pending)
        self.pending = []
        if not self._num_out:
            return False
        done = self._done.get(timeout=self.wait_s)
        self._num_out -= 1
        self.clock += 1e-6
        self.events += self.replica.transferred(done, now=self.clock)
        return True

    def forget_host(self):
        """Leave only what lies below the host."""
        self.forget_device()
        self.tiers.host.clear()

    def closed(self):
        self.settle()
        self.mover.close()

    def slots(self, tier=TierName.HOST):
        """Return where content lies, `key -> slot`."""
        index = self.tiers.host if tier == TierName.HOST else self.tiers.lower[tier].index
        return {key: index.slot_of(key) for key in index.in_order()}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.closed()
