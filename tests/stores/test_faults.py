"""Planted faults, counted: no wrong token is served and no request is lost."""

import os
import signal
import time

import numpy as np
import pytest

from tests.support.tiered_stores import StoredRun, fingerprint
from tests.support.toy_executor import naive_reply
from warmturn.cache.transfers import Outcome, TierName
from warmturn.stores.arena import HostArena
from warmturn.stores.slab import DiskSlab

PROMPT = [*range(30, 63)]  # eight full blocks, all of them hits, and one token
RIGHT = naive_reply(PROMPT, 2)


def asked(run, count):
    """Ask once more; return whether the reply is right and how many tokens were reused."""
    name = f"again {count}"
    reply = run.ask(name, PROMPT, 2)
    return reply == RIGHT, run.turns[name].cached_tokens


def num_problems(run, tier):
    return sum(n for (where, _), n in run.tiers.stats.problems.items() if where == tier)


def flip(data, rng):
    """Return `data` with one bit changed."""
    data = bytearray(data)
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(data)


class HostFaults:
    tier, options = TierName.HOST, {}

    def __init__(self, run, rng):
        self.run, self.rng = run, rng

    @staticmethod
    def options_of(tmp_path):
        return {}

    def prepare(self):
        self.run.forget_device()

    def blocks(self):
        return sorted(self.run.slots().values())

    def change(self, block, how):
        cells = self.run.arena.memory[block, :32]
        cells[:] = np.frombuffer(how(cells.tobytes()).ljust(32, b"\0"), np.uint8)


class DiskFaults(HostFaults):
    tier = TierName.DISK

    @staticmethod
    def options_of(tmp_path):
        return {"folder": tmp_path / "disk", "disk_slots": 16}

    def prepare(self):
        self.run.forget_host()

    def blocks(self):
        return sorted(self.run.slots(TierName.DISK).values())

    def change(self, block, how):
        with (self.run.slab.folder / "blocks.slab").open("r+b") as file:
            file.seek(4096 * (block + 1))
            data = how(file.read(32))
            file.seek(4096 * (block + 1))
            file.write(data.ljust(32, b"\0"))


class FolderFaults(HostFaults):
    tier = TierName.SHARED

    @staticmethod
    def options_of(tmp_path):
        return {"url": f"file://{tmp_path}/shared"}

    def prepare(self):
        self.run.forget_host()
        self.root = self.run.mover._shared._folder

    def blocks(self):
        return sorted(self.root.glob("*/*.kv"))

    def change(self, path, how):
        path.write_bytes(how(path.read_bytes()))


class RedisFaults(HostFaults):
    tier = TierName.SHARED

    def prepare(self):
        self.run.forget_host()
        self.client = self.run.mover._shared._client

    def blocks(self):
        return sorted(self.client.keys("warmturn:*"))

    def change(self, name, how):
        self.client.set(name, how(self.client.get(name)))


KINDS = {"host": HostFaults, "disk": DiskFaults, "folder": FolderFaults, "redis": RedisFaults}


@pytest.fixture(params=KINDS)
def faults(request, tmp_path):
    """A run that has stored the prompt, and a way to spoil what it stored in one tier."""
    kind = KINDS[request.param]
    if request.param == "redis":
        options = {"url": request.getfixturevalue("redis").url}
    else:
        options = kind.options_of(tmp_path)
    with StoredRun(16, host_slots=16, **options) as run:
        assert run.ask("first", PROMPT, 2) == RIGHT
        yield kind(run, np.random.default_rng(11))


@pytest.mark.parametrize("num_flips", [250])
def test_a_flipped_bit_is_a_miss(faults, num_flips):
    """250 in each of four tiers: 1,000 in all."""
    run, seen = faults.run, 0
    for count in range(num_flips):
        faults.prepare()
        before = num_problems(run, faults.tier)
        block = faults.blocks()[int(faults.rng.integers(len(faults.blocks())))]
        faults.change(block, lambda data: flip(data, faults.rng))
        right, cached = asked(run, count)
        assert right, f"flip {count}"
        seen += num_problems(run, faults.tier) - before
        assert cached < 32 or faults.tier == TierName.SHARED, "shared look-ups may come late"
        run.settle()
    assert seen >= num_flips * 0.9, "hardly a flip was met: the test shows nothing"
    assert len(run.turns) == num_flips + 1


@pytest.mark.parametrize("num_cuts", [50])
def test_a_truncated_block_is_a_miss(faults, num_cuts):
    """50 in each of four tiers; where a slot has no length of its own, its rest is zeroed."""
    run, seen = faults.run, 0
    for count in range(num_cuts):
        faults.prepare()
        before = num_problems(run, faults.tier)
        block = faults.blocks()[int(faults.rng.integers(len(faults.blocks())))]
        faults.change(block, lambda data: data[: int(faults.rng.integers(max(len(data) - 8, 1)))])
        assert asked(run, count)[0], f"cut {count}"
        seen += num_problems(run, faults.tier) - before
        run.settle()
    assert seen >= num_cuts * 0.9


def test_swapped_blocks_are_misses(faults):
    """Both are whole, and each is the other one's: 20 swaps in each tier."""
    run, seen = faults.run, 0
    for count in range(20):
        faults.prepare()
        before = num_problems(run, faults.tier)
        one, other = faults.rng.choice(len(faults.blocks()), 2, replace=False)
        one, other = faults.blocks()[one], faults.blocks()[other]
        kept = []
        faults.change(one, lambda data, kept=kept: kept.append(data) or data)
        faults.change(other, lambda data, kept=kept: kept.append(data) or kept[0])
        faults.change(one, lambda data, kept=kept: kept[1])
        assert asked(run, count)[0], f"swap {count}"
        seen += num_problems(run, faults.tier) - before
        run.settle()
    assert seen >= 18


@pytest.mark.parametrize("kind", KINDS)
def test_without_verification_wrong_bytes_and_wrong_tokens_would_be_served(kind, tmp_path, request):
    """The negative control of all tests above: the faults do reach the model."""
    wrong = 0
    if kind == "redis":
        options = {"url": request.getfixturevalue("redis").url}
    else:
        options = KINDS[kind].options_of(tmp_path)
    with StoredRun(16, host_slots=16, verifies=False, **options) as run:
        run.ask("first", PROMPT, 2)
        faults = KINDS[kind](run, np.random.default_rng(5))
        for count in range(10):
            faults.prepare()
            block = faults.blocks()[count % 8]
            header = 96 if kind in ("folder", "redis") else 0  # whose block it is stays as it is
            faults.change(block, lambda data, n=header: data[:n] + bytes(len(data) - n))
            wrong += not asked(run, count)[0]
            run.settle()
    assert wrong >= 5


def test_a_foreign_block_under_our_name_is_a_miss(tmp_path):
    """Another model's file, copied over ours."""
    url = f"file://{tmp_path}/shared"
    with StoredRun(16, host_slots=16, url=url) as run:
        run.ask("first", PROMPT, 2)
        faults = FolderFaults(run, None)
        faults.prepare()
        path = faults.blocks()[0]
        data = path.read_bytes()
        foreign = fingerprint("other").digest
        path.write_bytes(data[:16] + foreign + data[48:])
        assert asked(run, 0)[0]
        assert run.tiers.stats.problems["shared", "wrong"] == 1


# --- processes that die -------------------------------------------------------------------------


def content(number):
    """What block `number` holds: known without asking anybody."""
    return np.random.default_rng(number).integers(0, 256, 32).astype(np.uint8)


def key(number):
    return number.to_bytes(32, "little")


def opened(folder, *, slots=24):
    return DiskSlab(folder, num_bytes=4096 * (slots + 1), block_bytes=32, fingerprint=fingerprint())


def write_for_ever(folder, first, acknowledged):
    """Write block after block, slot after slot, and say so after each one."""
    slab, arena = opened(folder), HostArena(1, 32, fingerprint().digest)
    number = first
    while True:
        arena.block(0)[:] = content(number)
        slab.write(
            number % slab.num_slots, key(number), arena.padded(0), arena.seal(0, key(number))
        )
        os.write(acknowledged, number.to_bytes(8, "little"))
        number += 1


def test_a_killed_process_loses_at_most_the_block_it_was_writing(tmp_path):
    """100 times kill -9 at a random instant; everything acknowledged is found and right."""
    rng, first, num_found, slots = np.random.default_rng(3), 1, 0, 24
    for round_number in range(100):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                write_for_ever(tmp_path, first, writer)
            finally:
                os._exit(1)
        os.close(writer)
        assert os.read(reader, 8) == first.to_bytes(8, "little"), "the child did not start"
        time.sleep(float(rng.uniform(0, 0.01)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        last = first
        while data := os.read(reader, 1 << 16):
            last = int.from_bytes(data[-8:], "little")
        os.close(reader)
        num_found += check_all(tmp_path, first, last, slots, round_number)
        first = last + slots + 2
    assert num_found > 100


def check_all(folder, first, last, slots, round_number):
    """Every block found is right; every acknowledged one is found, but for the slot in flight."""
    slab, arena = opened(folder), HostArena(1, 32, fingerprint().digest)
    found = dict(slab.found())
    for block, slot in found.items():
        outcome, _ = slab.read(slot, block, arena.padded(0))
        assert outcome == Outcome.OK, f"round {round_number}"
        assert np.array_equal(arena.block(0), content(int.from_bytes(block, "little")))
    newest = range(max(first, last - slots + 2), last + 1)
    missing = [number for number in newest if key(number) not in found]
    assert missing == [], f"round {round_number}"
    slab.close()
    return len(found)
