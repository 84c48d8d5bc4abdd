"""Round trips of the Redis store."""

import numpy as np

from tests.support.tiered_stores import fingerprint
from warmturn.cache.record import block_checksum
from warmturn.cache.transfers import Outcome
from warmturn.stores import redis_store
from warmturn.stores.opening import open_shared
from warmturn.stores.redis_store import _batches

OWNER = fingerprint().digest
KEYS = [bytes([i]) * 32 for i in range(5)]


def stored(url):
    store = open_shared(url, OWNER)
    blocks = [np.full(32, i, np.uint8) for i in range(5)]
    sums = [block_checksum(b, k, OWNER) for b, k in zip(blocks, KEYS, strict=True)]
    store.write(KEYS, blocks, sums)
    return store, blocks, sums


def test_batches_are_whole_and_bounded(monkeypatch):
    monkeypatch.setattr(redis_store, "BATCH_BYTES", 10)
    assert list(_batches([4, 4, 4])) == [slice(0, 2), slice(2, 3)]
    assert list(_batches([40, 4])) == [slice(0, 1), slice(1, 2)], "one at least"
    assert list(_batches([])) == []


def test_a_read_tells_each_blocks_outcome_in_order(redis):
    store, blocks, sums = stored(redis.url)
    client = redis.client()
    names = sorted(client.keys("*"), key=lambda name: name[-2:])
    client.delete(names[1])
    client.set(names[3], client.get(names[3])[:-1] + b"x")
    targets = [np.zeros(32, np.uint8) for _ in KEYS]
    outcomes = store.read(KEYS, targets)
    ok, missing, wrong = Outcome.OK, Outcome.MISSING, Outcome.WRONG
    assert [o for o, _ in outcomes] == [ok, missing, ok, wrong, ok]
    assert [s for _, s in outcomes] == [sums[0], 0, sums[2], 0, sums[4]]
    assert all(np.array_equal(targets[i], blocks[i]) for i in (0, 2, 4))
    assert store.contains(KEYS) == [True, False, True, False, True], "what was wrong is deleted"


def test_blocks_travel_in_several_batches(redis, monkeypatch):
    monkeypatch.setattr(redis_store, "BATCH_BYTES", 70)
    store, blocks, _ = stored(redis.url)
    targets = [np.zeros(32, np.uint8) for _ in KEYS]
    assert [o for o, _ in store.read(KEYS, targets)] == [Outcome.OK] * 5
    assert all(np.array_equal(t, b) for t, b in zip(targets, blocks, strict=True))
