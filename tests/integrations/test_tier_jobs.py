"""Jobs over a real slab and a real folder: what comes back is what was written, or nothing."""

import mmap
import threading
import time

import numpy as np
import pytest

from warmturn.cache.fingerprint import Fingerprint
from warmturn.cache.transfers import Outcome
from warmturn.errors import PeerError
from warmturn.integrations.tier_jobs import ABSENT_S, TierJobs
from warmturn.stores.folder import FolderStore
from warmturn.stores.slab import DiskSlab
from warmturn.types import BlockHash

BLOCK_BYTES = 4096
FINGERPRINT = Fingerprint(
    model="m", weights="w", kv_dtype="float32", layout="l", block_size=4, num_layers=1,
    num_kv_heads=1, head_dim=4, rope="r", hash_scheme="sha256",
)  # fmt: skip


def key(number: int) -> BlockHash:
    return BlockHash(number.to_bytes(32, "big"))


class Rows:
    """The engine's host memory: rows of one block, aligned as vLLM's are."""

    def __init__(self, num: int) -> None:
        self._memory = mmap.mmap(-1, num * BLOCK_BYTES)
        self.array = np.frombuffer(self._memory, np.uint8).reshape(num, BLOCK_BYTES)

    def fill(self, number: int, value: int) -> None:
        self.array[number] = value

    def of(self, *numbers: int) -> list[memoryview]:
        return [memoryview(self.array[number]) for number in numbers]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def rows():
    return Rows(16)


@pytest.fixture
def clock():
    return Clock()


def slab(folder, *, slots=4, verifies=True):
    return DiskSlab(
        folder,
        num_bytes=(slots + 1) * BLOCK_BYTES,
        block_bytes=BLOCK_BYTES,
        fingerprint=FINGERPRINT,
        verifies=verifies,
    )


@pytest.fixture
def disk(tmp_path):
    """Open jobs on the disk folder of this test; all are closed at its end."""
    opened = []

    def open_jobs(**options):
        jobs = TierJobs(
            slab(tmp_path / "disk", **options), FINGERPRINT.digest, block_bytes=BLOCK_BYTES
        )
        opened.append(jobs)
        return jobs

    yield open_jobs
    for jobs in opened:
        jobs.check()
        jobs.close()


def ended(jobs):
    jobs.drain()
    jobs.check()
    (done,) = jobs.take_done()
    return done


def test_what_was_stored_is_found_and_read_back(disk, rows):
    jobs = disk()
    rows.fill(0, 7)
    rows.fill(1, 8)
    jobs.store(1, [key(1), key(2)], rows.of(0, 1))
    assert jobs.look_up(key(1)) is False  # not before it is whole
    assert ended(jobs).good == (key(1), key(2))
    assert [jobs.look_up(key(number)) for number in (1, 2, 3)] == [True, True, False]
    jobs.load(2, [key(2), key(1)], rows.of(4, 5))
    done = ended(jobs)
    assert (done.number, set(done.good), done.num_failed) == (2, {key(1), key(2)}, 0)
    assert (rows.array[4][0], rows.array[5][0]) == (8, 7)


def test_a_job_is_reported_once_its_last_part_is_done(disk, rows):
    jobs = disk(slots=16)
    jobs.store(1, [key(n) for n in range(16)], rows.of(*range(16)))
    done = ended(jobs)
    assert len(done.good) == 16
    assert done.num_bytes == 16 * BLOCK_BYTES
    assert jobs.take_done() == []
    assert jobs.is_idle


def test_blocks_that_are_there_already_are_not_written_again(disk, rows):
    jobs = disk()
    jobs.store(1, [key(1)], rows.of(0))
    ended(jobs)
    jobs.store(2, [key(1)], rows.of(1))
    done = ended(jobs)
    assert (done.good, done.num_failed) == ((), 0)


def test_the_least_recently_used_block_makes_room(disk, rows):
    jobs = disk(slots=2)
    jobs.store(1, [key(1)], rows.of(0))
    ended(jobs)
    jobs.store(2, [key(2)], rows.of(1))
    ended(jobs)
    jobs.touch([key(1)])
    jobs.store(3, [key(3)], rows.of(2))
    ended(jobs)
    assert [jobs.look_up(key(number)) for number in (1, 2, 3)] == [True, False, True]


def test_more_than_fits_is_left_out_without_a_failure(disk, rows):
    jobs = disk(slots=2)
    jobs.store(1, [key(n) for n in range(5)], rows.of(*range(5)))
    done = ended(jobs)
    assert (len(done.good), done.num_failed) == (2, 0)


def test_a_block_that_was_evicted_between_look_up_and_load_is_missing(disk, rows):
    jobs = disk(slots=1)
    jobs.store(1, [key(1)], rows.of(0))
    ended(jobs)
    assert jobs.look_up(key(1))
    jobs.store(2, [key(2)], rows.of(1))
    ended(jobs)
    jobs.load(3, [key(1)], rows.of(2))
    done = ended(jobs)
    assert (done.good, done.num_failed) == ((), 1)


def spoil(folder):
    path = folder / "disk" / "blocks.slab"
    content = bytearray(path.read_bytes())
    content[4096 + 100] ^= 1
    path.write_bytes(content)


def test_a_flipped_bit_fails_its_block_alone_and_is_forgotten(disk, rows, tmp_path):
    jobs = disk()
    jobs.store(1, [key(1)], rows.of(0))
    ended(jobs)
    jobs.store(2, [key(2)], rows.of(1))
    ended(jobs)
    spoil(tmp_path)
    jobs.load(3, [key(1), key(2)], rows.of(4, 5))
    done = ended(jobs)
    assert (done.good, done.num_failed) == ((key(2),), 1)
    assert jobs.look_up(key(1)) is False


def test_without_verifying_the_flipped_bit_is_served(disk, rows, tmp_path):
    """The control of the test before."""
    jobs = disk(verifies=False)
    jobs.store(1, [key(1)], rows.of(0))
    ended(jobs)
    spoil(tmp_path)
    jobs.load(2, [key(1)], rows.of(4))
    assert ended(jobs).good == (key(1),)
    assert rows.array[4][100] == 1


def test_what_one_process_wrote_the_next_one_finds(tmp_path, rows):
    def open_jobs():
        return TierJobs(slab(tmp_path / "d"), FINGERPRINT.digest, block_bytes=BLOCK_BYTES)

    first = open_jobs()
    rows.fill(0, 9)
    first.store(1, [key(1)], rows.of(0))
    first.close()
    second = open_jobs()
    assert second.look_up(key(1)) is True
    second.load(1, [key(1)], rows.of(3))
    assert ended(second).good == (key(1),)
    assert rows.array[3][0] == 9
    second.close()


# --- the shared store ---------------------------------------------------------------------------


def shared(store, clock):
    return TierJobs(store, FINGERPRINT.digest, block_bytes=BLOCK_BYTES, clock=clock)


def answered(jobs):
    """Wait until a question has its answer."""
    jobs.ask()
    deadline = time.monotonic() + 5
    while jobs._answers.empty():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    jobs.take_done()


def test_a_shared_store_is_asked_in_the_background(tmp_path, rows, clock):
    writer = shared(FolderStore(tmp_path, FINGERPRINT.digest), clock)
    rows.fill(0, 5)
    writer.store(1, [key(1)], rows.of(0))
    ended(writer)
    reader = shared(FolderStore(tmp_path, FINGERPRINT.digest), clock)
    assert [reader.look_up(key(1)), reader.look_up(key(2))] == [None, None]
    answered(reader)
    assert [reader.look_up(key(1)), reader.look_up(key(2))] == [True, False]
    reader.load(1, [key(1)], rows.of(3))
    assert ended(reader).good == (key(1),)
    assert rows.array[3][0] == 5


def test_no_is_believed_for_a_moment_only(tmp_path, clock):
    jobs = shared(FolderStore(tmp_path, FINGERPRINT.digest), clock)
    jobs.look_up(key(1))
    answered(jobs)
    assert jobs.look_up(key(1)) is False
    clock.now += ABSENT_S + 0.01
    assert jobs.look_up(key(1)) is None


class Silent:
    """A store that answers when it is let."""

    def __init__(self):
        self.may_answer = threading.Event()

    def contains(self, keys):
        self.may_answer.wait(5)
        return [True] * len(keys)

    def close(self):
        pass


def test_a_request_does_not_wait_longer_than_the_time_out(clock):
    store = Silent()
    jobs = shared(store, clock)
    assert jobs.look_up(key(1)) is None
    jobs.ask()
    clock.now += 0.05
    assert jobs.look_up(key(1)) is None
    clock.now += 0.06
    assert jobs.look_up(key(1)) is False
    store.may_answer.set()
    answered(jobs)
    assert jobs.look_up(key(1)) is True  # late, but good for the next request
    jobs.close()


class Broken:
    """A store that is down."""

    def __init__(self):
        self.num_calls = 0

    def _fail(self, *_):
        self.num_calls += 1
        raise PeerError("down")

    contains = write = read = _fail

    def close(self):
        pass


def test_a_store_that_is_down_is_a_miss_and_then_left_alone(rows, clock):
    store = Broken()
    jobs = shared(store, clock)
    for number in range(3):
        assert jobs.look_up(key(number)) is None
        answered(jobs)
        assert jobs.look_up(key(number)) is False
    assert jobs.look_up(key(9)) is False  # not even asked
    assert store.num_calls == 3
    clock.now += 60
    assert jobs.look_up(key(9)) is None  # one try


def test_a_write_that_failed_is_told_and_may_be_tried_again(rows, clock):
    jobs = shared(Broken(), clock)
    jobs.store(1, [key(1)], rows.of(0))
    done = ended(jobs)
    assert (done.good, done.num_failed) == ((), 1)
    assert jobs.tier.lacks(key(1), now=clock.now)


def test_a_defect_in_a_store_fails_the_job_and_not_the_engine(rows, clock):
    class Defective(Broken):
        def write(self, *_):
            raise ZeroDivisionError

    jobs = shared(Defective(), clock)
    jobs.store(1, [key(1)], rows.of(0))
    assert ended(jobs).num_failed == 1


def test_outcomes_of_a_load_are_those_of_the_store(rows, clock):
    class Half(Broken):
        def read(self, keys, targets):
            return [(Outcome.OK, 0), (Outcome.WRONG, 0)][: len(keys)]

    jobs = shared(Half(), clock)
    jobs.tier.known.add([key(1), key(2)], now=clock.now)
    jobs.load(1, [key(1), key(2)], rows.of(0, 1))
    done = ended(jobs)
    assert (done.good, done.num_failed) == ((key(1),), 1)
    assert jobs.tier.has(key(1), now=clock.now)
    assert not jobs.tier.has(key(2), now=clock.now)
