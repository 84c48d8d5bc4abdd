"""Whose call it is: tenant, salt and session of one request, at the price of a few look-ups.

The rules are `session`'s; here they are fed from a call without parsing more of it than they ask
for, and what they said of the same headers a moment ago is remembered.
"""

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from warmturn.errors import InvalidRequest
from warmturn.gateway.turns import Api, Call, CallFields, Refused
from warmturn.session.identity import IDENTITY_HEADERS, SessionIdentity, identify
from warmturn.session.tenant import Anonymous, SaltRule

__all__ = ["Caller", "Callers", "has_answer"]

MAX_KNOWN = 65_536
"""Tenants, sessions and responses remembered, each: some 20 MB."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and which conversation goes on."""

    session: SessionIdentity
    salt: str | None


class Callers:
    """Identifies calls by one salt rule.

    What it remembers is bounded: tables of pure results are emptied when full, responses leave in
    order of age.
    """

    def __init__(self, rule: SaltRule, *, session_header: str | None = None) -> None:
        """`session_header` names sessions before all other headers."""
        self._rule = rule
        self._session_header = session_header and session_header.lower()
        self._headers = IDENTITY_HEADERS | ({self._session_header} - {None})
        self._tenants: dict[tuple[str, str | None], tuple[str | None, str | None]] = {}
        self._sessions: dict[tuple[Any, ...], SessionIdentity] = {}
        self._responses: OrderedDict[tuple[str | None, str], str] = OrderedDict()
        self._place = os.urandom(8).hex()
        self._num_once = 0

    def of(self, call: Call) -> Caller:
        """Return who calls. Raises `Refused` with 401 where an identity is asked for and missing."""
        if self._rule.identity is None:
            return Caller(self._session(call, None, None), None)
        tenant, salt = self._tenant(call)
        if salt is not None:
            return Caller(self._session(call, tenant, salt), salt)
        # Anonymous, with a salt per session: the session first, and only a named one counts.
        session = self._session(call, None, None)
        named = session.key if session.is_explicit else None
        salt = self._salt(call, session_id=named, once=os.urandom(16))
        return Caller(session, salt)

    def remember_response(self, salt: str | None, response_id: str, session: str) -> None:
        """Note which session an answer belongs to, for the call that will go on from it."""
        self._responses[salt, response_id] = session
        if len(self._responses) > MAX_KNOWN:
            self._responses.popitem(last=False)

    def _tenant(self, call: Call) -> tuple[str | None, str | None]:
        """Return tenant and salt; no salt where the caller is anonymous and gets one per session."""
        rule = self._rule
        assert rule.identity is not None
        value = call.headers.get(rule.identity.header.lower(), "")
        user = _decoded(call.fields.user) if rule.per_user else None
        key = value, user if isinstance(user, str) else None
        found = self._tenants.get(key)
        if found is None:
            tenant = rule.identity.tenant_of(call.headers)
            if tenant is None and rule.anonymous is Anonymous.SESSION:
                found = None, None
            else:
                found = tenant, self._salt(call, user=key[1])
            _bounded(self._tenants)[key] = found
        return found

    def _salt(self, call: Call, **what: Any) -> str | None:
        try:
            return self._rule.salt_for(call.headers, **what)
        except InvalidRequest as error:
            raise Refused(401, str(error), code=error.code, param=error.param) from None

    def _session(self, call: Call, tenant: str | None, salt: str | None) -> SessionIdentity:
        names = self._headers
        found = [item for item in call.headers.items() if item[0] in names]
        if not found or len(call.fields.vllm_xargs):  # a parent may be named in there
            return self._identified(call, tenant, salt)
        key = tenant, *found
        session = self._sessions.get(key)
        if session is None:
            session = self._identified(call, tenant, salt)
            if session.source != "header":
                return session
            _bounded(self._sessions)[key] = session
        return session

    def _identified(self, call: Call, tenant: str | None, salt: str | None) -> SessionIdentity:
        self._num_once += 1
        return identify(
            call.headers,
            LazyBody(call.fields),
            tenant=tenant,
            salt=salt,
            session_header=self._session_header,
            once=f"{self._place} {self._num_once}",
            session_of_response=lambda response_id: self._responses.get((salt, response_id)),
        )


_ABSENT = object()


class LazyBody(Mapping[str, Any]):
    """A body's fields, each parsed when it is asked for; of messages only the first few."""

    def __init__(self, fields: CallFields) -> None:
        self._fields = fields

    def get(self, name: str, default: Any = None) -> Any:
        """Return one field. Most are absent, and are asked for with every derived session."""
        value = getattr(self._fields, name, None)
        if type(value) is not msgspec.Raw:
            return default if value is None else value
        if not len(value):
            return default
        return _first_messages(value) if name in {"messages", "input"} else _decoded(value)

    def __getitem__(self, name: str) -> Any:
        value = self.get(name, _ABSENT)
        if value is _ABSENT:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        names = self._fields.__struct_fields__
        return (name for name in names if len(getattr(self._fields, name) or b""))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def has_answer(call: Call) -> bool:
    """Say whether an answer stands in the call's messages.

    A word in quotes is looked for, not a role: a message that consists of that word alone passes
    for an answer, which only changes how a new session is placed.
    """
    if call.api is Api.RESPONSES and len(call.fields.previous_response_id):
        return True
    return call.body.find(b'"assistant"') >= 0


def _decoded(raw: msgspec.Raw) -> Any:
    """Return the value; None where it is absent, or no JSON, which the replica will complain of."""
    try:
        return msgspec.json.decode(raw) if len(raw) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_LEADING = frozenset({"system", "developer"})


def _first_messages(raw: msgspec.Raw) -> Any:
    """Return leading system messages and the first other one; text and anything odd as it is."""
    try:
        messages = _as_list.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decoded(raw)
    first = []
    for message in messages:
        first.append(_decoded(message))
        role = first[-1].get("role") if isinstance(first[-1], dict) else None
        if role not in _LEADING:
            break
    return first


_as_list = msgspec.json.Decoder(list[msgspec.Raw])


def _bounded(table: dict[Any, Any]) -> dict[Any, Any]:
    """Return `table` with room for one more: pure results may be thrown away at any time."""
    if len(table) >= MAX_KNOWN:
        table.clear()
    return table
