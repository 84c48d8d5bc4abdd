"""Which conversation a request belongs to, and what said so.

The order, first hit wins; header names in any case, blank values count as absent:

    1  header                 a session header: the configured one, then the field's others
    2  header                 a coding agent's session, with its sub-agent if it names one
    3  prompt_cache_key       body
    4  previous_response_id   body, where the response it names is known
    5  conversation           body, a string or an object with an id
    6  metadata               `session_id` in the body, `metadata`, `session_params`, or a program id
    7  derived                digest of model, salt, user, tools and first messages
    8  once                   nothing to derive from: a key for this request alone

Never taken: `x-request-id`, `traceparent` and other ids of single requests, which turn affinity
into chance; an empty id, which sends all to one place; all messages, which change every turn.
`user` alone is none either: one value for a whole application is as good as an empty one.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["IDENTITY_HEADERS", "SESSION_HEADERS", "SessionIdentity", "identify"]

SESSION_HEADERS = (
    "x-session-id",
    "x-dynamo-session-id",
    "x-smg-routing-key",
    "x-aibrix-session-key",
    "x-litellm-session-id",
    "x-session-affinity",
    "x-multi-turn-session-id",
)
"""Of routers and clients in the field."""

_PARENT_HEADERS = ("x-parent-session-id", "x-dynamo-parent-session-id")
# Session header, header of a conversation within it, header of that one's parent within it.
_AGENT_HEADERS = (
    ("x-claude-code-session-id", "x-claude-code-agent-id", "x-claude-code-parent-agent-id"),
    ("session-id", "thread-id", None),
)
IDENTITY_HEADERS = frozenset((*SESSION_HEADERS, *_PARENT_HEADERS)) | {
    name for names in _AGENT_HEADERS for name in names if name is not None
}
"""Every header that has a say, beside a configured one."""
_ID_PATHS = (
    ("session_id",),
    ("metadata", "session_id"),
    ("session_params", "session_id"),
    ("vllm_xargs", "agentic_context", "program_id"),
)
_PARENT_PATH = ("vllm_xargs", "agentic_context", "parent_program_id")

_EFFORT = re.compile(r"\([^()]*\)\s*$")
"""`model(high)` is the model at another effort of thinking: one conversation all the same."""
_FIRST_ROLES = frozenset({"system", "developer"})
MAX_ID_CHARS = 1024
"""A longer id is no id but a mistake, and is skipped."""


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """Whose turn it is."""

    key: str
    """32 hexadecimal digits; never the id itself. The same on every gateway."""
    source: str
    """The row of the table above: `header`, `prompt_cache_key` ... `derived`."""
    name: str | None = None
    """The header or field; None where derived."""
    parent_key: str | None = None
    """The session this one was forked or spawned from: where its first turn is best placed."""

    @property
    def is_explicit(self) -> bool:
        """Say whether the client named the session, rather than its content."""
        return self.source not in {"derived", "once"}


def identify(
    headers: Mapping[str, str],
    body: Mapping[str, Any],
    *,
    tenant: str | None = None,
    salt: str | None = None,
    session_header: str | None = None,
    once: str = "",
    session_of_response: Callable[[str], str | None] = lambda _response_id: None,
) -> SessionIdentity:
    """Return the session of one request; never fails, and never an empty key.

    Ids are scoped by tenant: two tenants with one id have two sessions. `session_of_response` maps
    the id of an answer to the key of its session, where the gateway has seen it. `once` is text
    that no other request has, for those without id and content: one key for all of them would send
    them all to one place.
    """
    named = {name.lower(): value.strip() for name, value in headers.items()}
    found = _from_headers(named, session_header) or _from_body(body)
    response_id = _text(body.get("previous_response_id"))
    if found is None or found.source in {"conversation", "metadata"}:
        known = session_of_response(response_id) if response_id else None
        if known:
            return SessionIdentity(known, "previous_response_id", "previous_response_id")
    if found is None:
        return _derived(body, tenant, salt, once)
    parent = found.parent or _first(named, _PARENT_HEADERS) or _at(body, _PARENT_PATH)
    return SessionIdentity(
        _key(tenant, found.session_id),
        found.source,
        found.name,
        _key(tenant, parent) if parent and parent != found.session_id else None,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    session_id: str
    source: str
    name: str
    parent: str | None = None


def _from_headers(named: Mapping[str, str], session_header: str | None) -> _Found | None:
    own = (session_header.lower(),) if session_header else ()
    for name in (*own, *SESSION_HEADERS):
        if session_id := _text(named.get(name)):
            return _Found(session_id, "header", name)
    for session, agent, parent in _AGENT_HEADERS:
        if session_id := _text(named.get(session)):
            return _agent(named, session_id, session, agent, parent)
    return None


def _agent(
    named: Mapping[str, str], session_id: str, session: str, agent: str, parent: str | None
) -> _Found:
    """A sub-agent is a conversation of its own, begun where its parent is."""
    agent_id = _text(named.get(agent))
    if agent_id is None or agent_id == session_id:
        return _Found(session_id, "header", session)
    parent_id = _text(named.get(parent)) if parent else None
    above = session_id if parent_id is None else f"{session_id}\0{parent_id}"
    return _Found(f"{session_id}\0{agent_id}", "header", session, above)


def _from_body(body: Mapping[str, Any]) -> _Found | None:
    if key := _text(body.get("prompt_cache_key")):
        return _Found(key, "prompt_cache_key", "prompt_cache_key")
    conversation = body.get("conversation")
    if isinstance(conversation, Mapping):
        conversation = conversation.get("id")
    if session_id := _text(conversation):
        return _Found(session_id, "conversation", "conversation")
    for path in _ID_PATHS:
        if session_id := _at(body, path):
            return _Found(session_id, "metadata", ".".join(path))
    return None


def _first(named: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((value for name in names if (value := _text(named.get(name)))), None)


def _at(body: Mapping[str, Any], path: Sequence[str]) -> str | None:
    value: Any = body
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return _text(value)


def _text(value: Any) -> str | None:
    """Return a usable id, None for anything else: blank, too long, or no text."""
    if not isinstance(value, str):
        return None
    stripped = value.strip()
    return stripped if 0 < len(stripped) <= MAX_ID_CHARS else None


def _derived(
    body: Mapping[str, Any], tenant: str | None, salt: str | None, once: str
) -> SessionIdentity:
    """Digest what stays equal over the turns of one conversation.

    Two conversations that begin alike share it, which is harmless: they share blocks, and the
    bound on load spreads them.
    """
    model = body.get("model")
    first = _beginning(body)
    beginning = {
        "model": _EFFORT.sub("", model).strip() if isinstance(model, str) else None,
        "salt": salt,
        "user": _text(body.get("user")),
        "system": body.get("system"),  # Anthropic's place for it
        "instructions": body.get("instructions"),  # the responses API's
        "tools": body.get("tools"),
        "first": first,
        "once": None if first else once,
    }
    key = _key(tenant, json.dumps(beginning, sort_keys=True, default=str), derived=True)
    return SessionIdentity(key, "derived" if first else "once")


def _beginning(body: Mapping[str, Any]) -> Any:
    """Return leading system messages and the first other one; of a prompt its first part."""
    messages = body.get("messages", body.get("input"))
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        prompt = messages if messages is not None else body.get("prompt")
        return prompt[:256] if isinstance(prompt, str | list) else None
    first = []
    for message in messages:
        first.append(message)
        if not isinstance(message, Mapping) or message.get("role") not in _FIRST_ROLES:
            break
    return first


def _key(tenant: str | None, text: str, *, derived: bool = False) -> str:
    content = json.dumps([tenant, text, derived]).encode()
    return hashlib.blake2b(content, digest_size=16, person=b"session").hexdigest()
