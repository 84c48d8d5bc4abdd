"""Where a replica is, read from its configuration: URL, name, key, event endpoints."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from warmturn.errors import InvalidInput
from warmturn.gateway.config import ReplicaPart

__all__ = ["ReplicaUrl", "api_key_of", "first_line", "is_by_name", "named", "read_url", "resolved"]

_DNS = "dns+"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ReplicaUrl:
    """The parts of `http[s]://HOST:PORT[/PREFIX]`."""

    host: str
    port: int
    tls: bool
    path_prefix: str
    """Empty, or begins with `/` and does not end with it; `/v1` is left out."""

    @property
    def authority(self) -> str:
        """`HOST:PORT`, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def base(self) -> str:
        """The URL, without `/v1`."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path_prefix}"


def read_url(url: str) -> ReplicaUrl:
    """Return the parts of a replica's URL. Raises `InvalidInput` that says what it takes."""
    try:
        parts = urlsplit(url.removeprefix(_DNS))
        port = parts.port
    except ValueError as error:
        raise _wrong(url, str(error)) from error
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise _wrong(url, "it is not http or https with a host")
    if _has_more(parts):
        raise _wrong(url, "it has a user, a query or a fragment, which belong elsewhere")
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    if not prefix.isascii() or not prefix.isprintable() or " " in prefix:
        raise _wrong(url, "its path has other characters than visible ASCII")
    default = _DEFAULT_PORTS[parts.scheme]
    return ReplicaUrl(
        parts.hostname, default if port is None else port, parts.scheme == "https", prefix
    )


def is_by_name(part: ReplicaPart) -> bool:
    """Say whether the part stands for every address of its name."""
    return part.url.startswith(_DNS)


def named(part: ReplicaPart) -> ReplicaPart:
    """Return the part with name and endpoints filled in: the host stands for `*`."""
    url = read_url(part.url)
    host = f"[{url.host}]" if ":" in url.host else url.host
    events, replay = (
        None if one is None else one.replace("*", host) for one in (part.events, part.replay)
    )
    if replay is not None and events is None:
        raise InvalidInput(
            f"replica {part.url} has `replay` without `events`; give both, or neither"
        )
    return replace(part, name=part.name or url.authority, events=events, replay=replay)


def resolved(part: ReplicaPart, address: str) -> ReplicaPart:
    """Return what the part stands for at one address of its name."""
    url = read_url(part.url)
    at_address = replace(url, host=address)
    return named(
        replace(
            part,
            url=at_address.base,
            name=None if part.name is None else f"{part.name}@{at_address.authority}",
            server_hostname=part.server_hostname or (url.host if url.tls else None),
        )
    )


def api_key_of(part: ReplicaPart) -> str | None:
    """Return the key the engine asks for, None where it asks for none.

    Raises `InvalidInput` naming the variable or file, never its content.
    """
    if part.api_key_env is not None and part.api_key_file is not None:
        raise InvalidInput(f"replica {part.url} has api_key_env and api_key_file; keep one of them")
    if part.api_key_env is not None:
        key = os.environ.get(part.api_key_env, "").strip()
        if not key:
            raise InvalidInput(
                f"replica {part.url}: the environment variable {part.api_key_env} is empty or not "
                "set; put the engine's key there"
            )
    elif part.api_key_file is not None:
        key = first_line(part.api_key_file, what=f"api_key_file of replica {part.url}")
    else:
        return None
    if not key.isascii() or not key.isprintable():
        raise InvalidInput(f"replica {part.url}: its API key has characters no header can carry")
    return key


def first_line(path: Path, *, what: str) -> str:
    """Return a secret file's first line. Raises `InvalidInput` where there is none."""
    try:
        with path.open(encoding="utf-8") as file:
            line = file.readline(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidInput(f"{what}: {path}: {reason}; name a readable file") from error
    if not line:
        raise InvalidInput(f"{what}: the first line of {path} is empty; write the secret there")
    return line


def _has_more(parts: SplitResult) -> bool:
    return bool(parts.query or parts.fragment or parts.username or parts.password)


def _wrong(url: str, reason: str) -> InvalidInput:
    shown = url if "@" not in url else "(it has an @, so it is not shown)"
    return InvalidInput(f"replica URL {shown}: {reason}; give http://HOST:PORT, without /v1")
