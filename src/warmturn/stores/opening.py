"""Tiers as the command line names them: sizes, folders, URLs."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from warmturn.cache.fingerprint import Digest
from warmturn.errors import InvalidInput
from warmturn.stores.folder import FolderStore
from warmturn.stores.mover import SharedStore

__all__ = ["DiskSpec", "check_shared_url", "disk_spec", "open_shared", "size_in_bytes"]

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for ending, base in (("iB", 1024), ("B", 1000), ("", 1024))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_REDIS_SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")
_OPTIONS = {"namespace", "ttl", "timeout", "max"}


def size_in_bytes(text: str, *, option: str) -> int:
    """Read `2GiB`, `500MB`, `4096`; a bare letter is a power of 1,024. Raises `InvalidInput`."""
    match = _SIZE.fullmatch(text.strip())
    units = {name.lower(): factor for name, factor in _UNITS.items()}
    factor = None if match is None else units.get(match[2].lower())
    if match is None or factor is None:
        raise InvalidInput(f"{option}: {text!r} is no size; write it like 2GiB, 500MB or 4096")
    return int(float(match[1]) * factor)


@dataclass(frozen=True, slots=True)
class DiskSpec:
    """A disk tier as asked for."""

    folder: Path
    num_bytes: int


def disk_spec(text: str) -> DiskSpec:
    """Read `PATH:SIZE`. Raises `InvalidInput`."""
    path, colon, size = text.rpartition(":")
    if not colon or not path:
        raise InvalidInput(f"--disk-tier: {text!r} is not PATH:SIZE, such as /var/tmp/kv:8GiB")
    return DiskSpec(Path(path), size_in_bytes(size, option="--disk-tier"))


def check_shared_url(url: str) -> None:
    """Raise `InvalidInput` for a URL that `open_shared` could not use; opens nothing."""
    scheme = urlsplit(url).scheme
    if scheme not in ("file", *_REDIS_SCHEMES):
        raise InvalidInput(
            f"--shared-tier: scheme {scheme!r} is not known; "
            "use redis://HOST:PORT, unix://SOCKET or file:///FOLDER"
        )
    unknown = {name for name, _ in parse_qsl(urlsplit(url).query)} - _OPTIONS - {"db"}
    if unknown:
        raise InvalidInput(
            f"--shared-tier: option {', '.join(sorted(unknown))} is not known; "
            f"there are {', '.join(sorted(_OPTIONS))}"
        )


def open_shared(url: str, owner: Digest, *, verifies: bool = True) -> SharedStore:
    """Open the store that `url` names for blocks of one fingerprint.

        file:///mnt/kv?max=200GiB&ttl=86400
        redis://host:6379/0?namespace=prod&ttl=86400&timeout=0.5      times in seconds

    Raises `InvalidInput` for a URL or folder that cannot be used, `MissingExtra` without the redis
    package. A server that does not answer is no error here: it may come back.
    """
    check_shared_url(url)
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    ttl_s = _seconds(options, "ttl", 24 * 3600.0)
    if parts.scheme == "file":
        if not parts.path:
            raise InvalidInput(f"--shared-tier: {url!r} names no folder; write file:///FOLDER")
        most = options.get("max")
        return FolderStore(
            Path(parts.path),
            owner,
            max_bytes=None if most is None else size_in_bytes(most, option="--shared-tier"),
            ttl_s=ttl_s,
            verifies=verifies,
        )
    from warmturn.stores.redis_store import RedisStore  # noqa: PLC0415 - an extra

    query = urlencode({name: value for name, value in options.items() if name == "db"})
    scheme = parts.scheme.replace("valkey", "redis")
    return RedisStore(
        f"{scheme}://{parts.netloc}{parts.path}{'?' if query else ''}{query}",
        owner,
        namespace=options.get("namespace", "default"),
        ttl_s=ttl_s,
        timeout_s=_seconds(options, "timeout", 1.0),
        verifies=verifies,
    )


def _seconds(options: dict[str, str], name: str, default: float) -> float:
    text = options.get(name)
    try:
        seconds = default if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidInput(f"--shared-tier: {name}={text} is no number of seconds above 0")
    return seconds
