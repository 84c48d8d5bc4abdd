"""Who calls, and the salt that keeps what they leave in a cache from all others.

The salt is derived once, at the gateway, from the authenticated identity, and is the same value in
routing, forwarding and lower tiers. What a client sends as `cache_salt` is overwritten: a salt that
the caller may choose protects nobody.

    salt = key id (8 hex digits) + keyed BLAKE2b of the identity (48 hex digits)

The key makes it unguessable; the key id tells which key made it, so that keys can be rotated. A new
key is a new cache for everybody.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from warmturn.errors import InvalidInput, InvalidRequest

__all__ = ["Anonymous", "IdentityRule", "SaltKey", "SaltRule", "is_placeholder"]

MIN_KEY_BYTES = 16
_KEY_ID_BYTES, _SALT_BYTES = 4, 24

# What client libraries and proxies send where there is no key, less what surrounds the word:
# `sk-no-key-required`, `fake-api-key`, `EMPTY`, `not_needed`.
_FRAME = re.compile(r"^sk-|((-api)?-key)?(-required)?$")
_PLACEHOLDERS = frozenset(
    {"", "anonymous", "api", "changeme", "dummy", "empty", "fake", "your"}
) | {
    *("n/a", "na", "no", "nokey", "none", "not", "not-needed", "notneeded", "null"),
    *("placeholder", "undefined", "unused"),
}
_FILLER = re.compile(r"[x*.-]{3,}")


class Anonymous(StrEnum):
    """What to do with callers without a usable identity, where identity is configured."""

    REFUSE = "refuse"
    SESSION = "session"
    """A salt per session: their own conversations stay warm, nothing is shared."""
    SHARED = "shared"
    """One salt for all of them: they can learn from timing what others asked."""


@dataclass(frozen=True, slots=True)
class IdentityRule:
    """Where the caller's identity stands. The header has to be authenticated before this."""

    header: str
    scheme: str | None = None
    """Word before the identity, such as `bearer`."""

    def tenant_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the caller's identity; None where there is none, or only a placeholder.

        Names and scheme in any case. A value with another scheme is no identity.
        """
        wanted = self.header.lower()
        value = next((v for name, v in headers.items() if name.lower() == wanted), "").strip()
        if self.scheme is not None:
            first, _, rest = value.partition(" ")
            if first.lower() == self.scheme.lower():
                value = rest.strip()
            elif rest:
                return None
        return None if is_placeholder(value) else value


@dataclass(frozen=True, slots=True)
class SaltKey:
    """A secret that all gateways of a fleet share. Raises `InvalidInput` if shorter than 16 bytes."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < MIN_KEY_BYTES:
            raise InvalidInput(
                f"the salt key has {len(self.secret)} bytes; give a file with at least "
                f"{MIN_KEY_BYTES} random ones"
            )

    @property
    def key_id(self) -> str:
        """Eight digits that say which key this is, and nothing about it."""
        return self._keyed(b"key-id", b"", _KEY_ID_BYTES)

    def salt(self, kind: str, *parts: str) -> str:
        """Return the salt of an identity: 56 lower-case hexadecimal digits."""
        text = json.dumps([kind, *parts]).encode()  # typed: no two identities are written alike
        return self.key_id + self._keyed(b"salt", text, _SALT_BYTES)

    def _keyed(self, person: bytes, text: bytes, num_bytes: int) -> str:
        key = self.secret
        if len(key) > hashlib.blake2b.MAX_KEY_SIZE:
            key = hashlib.blake2b(key).digest()
        return hashlib.blake2b(text, key=key, person=person, digest_size=num_bytes).hexdigest()


@dataclass(frozen=True, slots=True)
class SaltRule:
    """Who gets which salt. Without `identity` there is one tenant and no salt at all."""

    key: SaltKey | None = None
    identity: IdentityRule | None = None
    anonymous: Anonymous = Anonymous.REFUSE
    per_user: bool = False
    """Keep the users of one tenant apart too, by the body's `user`."""

    def __post_init__(self) -> None:
        if self.identity is not None and self.key is None:
            raise InvalidInput(
                "tenants are told apart by a header, but there is no salt key; "
                "give a key file, the same one to every gateway"
            )

    def salt_for(
        self,
        headers: Mapping[str, str],
        *,
        user: str | None = None,
        session_id: str | None = None,
        once: bytes = b"",
    ) -> str | None:
        """Return the salt to forward and to route by; None only where no identity is configured.

        `session_id` is one that the client named: a session derived from content would give two
        strangers with equal prompts one salt. Where there is none, an anonymous caller's salt is
        made of `once`, random bytes of the caller for this request.
        Raises `InvalidRequest` for an anonymous caller where those are refused.
        """
        if self.identity is None or self.key is None:
            return None
        tenant = self.identity.tenant_of(headers)
        if tenant is not None:
            user = user if self.per_user else None
            return self.key.salt("tenant", tenant, *([] if user is None else [user]))
        return self._anonymous_salt(self.key, self.identity, session_id, once)

    def _anonymous_salt(
        self, key: SaltKey, identity: IdentityRule, session_id: str | None, once: bytes
    ) -> str:
        if self.anonymous is Anonymous.SHARED:
            return key.salt("anonymous")
        if self.anonymous is Anonymous.SESSION and session_id:
            return key.salt("session", session_id)
        if self.anonymous is Anonymous.SESSION and once:
            return key.salt("once", once.hex())
        raise InvalidRequest(
            f"the request has no identity in header {identity.header!r}, or a placeholder; "
            "send the key that was given to you",
            param=identity.header,
            code="identity_required",
        )


def is_placeholder(identity: str) -> bool:
    """Say whether a value stands for "no key": blank, a known filler word, or `xxxx`."""
    word = re.sub(r"[_\s]", "-", identity.strip().strip("'\"<>").lower())
    core = _FRAME.sub("", word)
    return core in _PLACEHOLDERS or _FILLER.fullmatch(core) is not None
