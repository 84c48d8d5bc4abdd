"""Stores that are down, slow, full or somebody else's, and options that cannot be right."""

import errno
import os

import numpy as np
import pytest

from tests.support.tiered_stores import StoredRun, fingerprint
from tests.support.toy_executor import naive_reply
from warmturn.cache.transfers import TierName
from warmturn.errors import InvalidInput
from warmturn.stores import slab as slab_module
from warmturn.stores.opening import check_shared_url, disk_spec, open_shared, size_in_bytes
from warmturn.stores.slab import DiskSlab


def opened(folder, *, slots=4, model="toy", **changes):
    options = {"num_bytes": 4096 * (slots + 1), "block_bytes": 32} | changes
    return DiskSlab(folder, fingerprint=fingerprint(model), **options)


def keep_asking(run, count=12):
    """Ask for one prompt after another; all replies must be right."""
    for i in range(count):
        prompt = [*range(10 * i, 10 * i + 13)]
        assert run.ask(f"r{i}", prompt) == naive_reply(prompt, 4)
    assert len(run.turns) == count


def test_a_restart_finds_every_block_again(tmp_path):
    prompt = [*range(20)]
    with StoredRun(8, host_slots=8, folder=tmp_path, disk_slots=16) as run:
        run.ask("a", prompt, 1)
    with StoredRun(8, host_slots=8, folder=tmp_path, disk_slots=16) as again:
        assert again.ask("b", prompt, 3) == naive_reply(prompt, 3)
        assert dict(again.turns["b"].loaded_tokens) == {"disk": 16}


def test_another_engine_goes_on_through_a_folder(tmp_path):
    url = f"file://{tmp_path}"
    with StoredRun(8, host_slots=8, url=url) as one, StoredRun(8, host_slots=8, url=url) as two:
        reply = one.ask("turn 1", range(10), 7)
        one.settle()
        prompt = [*range(10), *reply, 50]
        assert two.ask("turn 2", prompt) == naive_reply(prompt, 4)
        assert dict(two.turns["turn 2"].loaded_tokens) == {"shared": 16}


def test_another_engine_goes_on_through_redis(redis):
    with (
        StoredRun(8, host_slots=8, url=redis.url) as one,
        StoredRun(8, host_slots=8, url=redis.url) as two,
    ):
        reply = one.ask("turn 1", range(10), 7)
        one.settle()
        prompt = [*range(10), *reply, 50]
        assert two.ask("turn 2", prompt) == naive_reply(prompt, 4)
        assert dict(two.turns["turn 2"].loaded_tokens) == {"shared": 16}
        assert all(redis.client().pttl(k) > 0 for k in redis.client().keys("*"))


def test_a_server_that_is_gone_is_left_alone_and_serving_goes_on(redis):
    with StoredRun(8, host_slots=8, url=redis.url) as run:
        run.ask("first", range(13))
        run.settle()
        redis.stop()
        try:
            keep_asking_more(run)
            assert run.tiers.stats.problems["shared", "failed"] > 0
            assert not run.tiers.lower[TierName.SHARED].reads.is_closed
        finally:
            redis.start()


def keep_asking_more(run):
    for i in range(12):
        prompt = [*range(100 + 10 * i, 113 + 10 * i)]
        assert run.ask(f"more {i}", prompt) == naive_reply(prompt, 4)


def test_a_server_that_never_answers_times_out(redis):
    with StoredRun(8, host_slots=8, url=redis.url) as run:
        redis.freeze()
        try:
            keep_asking(run, 4)
        finally:
            redis.freeze(frozen=False)
        assert run.tiers.stats.lookups["failed"] >= 1


def test_a_full_disk_goes_quiet_and_serving_goes_on(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with StoredRun(8, host_slots=8, folder=tmp_path, disk_slots=16) as run:
        run.ask("first", range(13))
        run.settle()
        monkeypatch.setattr(slab_module.os, "pwrite", full)
        keep_asking_more(run)
        run.settle()
        stats = run.tiers.stats
        assert stats.problems["disk", "failed"] >= 3
        assert stats.skipped["disk", "closed"] > 0
        monkeypatch.undo()


def test_a_folder_is_one_process_at_a_time(tmp_path):
    first = opened(tmp_path)
    with pytest.raises(InvalidInput, match="used by another process"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("changes", [{"model": "other"}, {"block_bytes": 64}])
def test_a_folder_of_another_model_is_refused_and_left_as_it_is(tmp_path, changes):
    opened(tmp_path).close()
    before = (tmp_path / "blocks.slab").read_bytes()
    with pytest.raises(InvalidInput, match="belongs to toy"):
        opened(tmp_path, **changes)
    assert (tmp_path / "blocks.slab").read_bytes() == before
    opened(tmp_path).close()


def test_a_file_that_is_no_slab_is_left_alone(tmp_path):
    (tmp_path / "blocks.slab").write_bytes(b"precious")
    with pytest.raises(InvalidInput, match="no slab of warmturn"):
        opened(tmp_path)
    assert (tmp_path / "blocks.slab").read_bytes() == b"precious"


def test_a_disk_tier_below_one_block_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="one block takes 4,096"):
        opened(tmp_path, num_bytes=4096)


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be used"):
        opened(tmp_path / "file" / "below")
    with pytest.raises(InvalidInput, match="cannot be used"):
        open_shared(f"file://{tmp_path}/file/below", fingerprint().digest)


def test_an_old_or_large_folder_is_cleaned_up_oldest_use_first(tmp_path):
    store = open_shared(f"file://{tmp_path}?max=400", fingerprint().digest)
    block = np.zeros(32, np.uint8)
    keys = [bytes([i]) * 32 for i in range(5)]
    for i, key in enumerate(keys):
        store.write([key], [block], [0])
        os.utime(store._path(key), (i, i))  # 128 bytes each: three fit
    assert store.clean() == 5, "unused since 1970"
    for key in keys:
        store.write([key], [block], [0])
    assert store.clean() == 2
    assert sum(store.contains(keys)) == 3


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("4096", 4096), ("2GiB", 2 << 30), ("2g", 2 << 30), ("1.5 MB", 1_500_000), ("7kb", 7000)],
)
def test_sizes_are_read(text, num_bytes):
    assert size_in_bytes(text, option="--host-tier") == num_bytes


@pytest.mark.parametrize("text", ["", "big", "-1", "2XB", "1e9"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InvalidInput, match="is no size"):
        size_in_bytes(text, option="--host-tier")


def test_options_that_cannot_be_right_are_refused():
    with pytest.raises(InvalidInput, match="not PATH:SIZE"):
        disk_spec("/var/tmp/kv")
    with pytest.raises(InvalidInput, match="scheme 'ftp' is not known"):
        check_shared_url("ftp://host")
    with pytest.raises(InvalidInput, match="option tll is not known"):
        check_shared_url("redis://host?tll=3")
    with pytest.raises(InvalidInput, match="ttl=soon is no number"):
        open_shared("redis://host?ttl=soon", fingerprint().digest)
