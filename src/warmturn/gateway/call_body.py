"""A request's JSON body: the fields the gateway looks at, and the few that it sets.

The client's bytes go on unchanged but for fields the gateway owns. An absent one is inserted after
the first brace; where the client sent one itself, the top level is joined anew from its parts, each
verbatim, so that no key stands there twice: of two, one parser takes the first, another the last.
"""

import json
from operator import attrgetter
from typing import Any

import msgspec

from warmturn import formats
from warmturn.gateway.turns import Api, Call, CallFields, Refused, Turn

__all__ = ["edited_body", "read_fields", "wants_usage"]

_decode_fields = msgspec.json.Decoder(CallFields).decode
_decode_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode

_OWNED = ("cache_salt", "stream_options")
_PEERS_ONLY = (
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "data_parallel_rank",
    "routed_dp_rank",
    "disagg_prefill_dp_rank",
)
"""Fields by which engines move keys and values between each other, or address one rank."""
_STREAMED_WITH_OPTIONS = frozenset({Api.CHAT, Api.COMPLETIONS})
_SHORT = 64
"""A body shorter than this may be an empty object, behind whose brace nothing can be inserted."""
_COPIED = 4096
"""A body up to this long is copied behind what is inserted: cheaper than one part more to send."""
_watched_fields = attrgetter(*_PEERS_ONLY, *_OWNED, "vllm_xargs")
_NONE_WATCHED = _watched_fields(CallFields())


def read_fields(body: bytes, api: Api) -> CallFields:
    """Return what the gateway looks at. Raises `Refused` for what must not be sent on.

    Of paths relayed by allow-list the body may be anything; a JSON object is held to the same.
    """
    try:
        fields = _decode_fields(body)
        if _watched_fields(fields) != _NONE_WATCHED:  # absent ones are one object: quickly equal
            _check_watched(body, fields)
    except msgspec.ValidationError as error:
        if not _may_be_relayed(body, api):
            raise Refused(400, f"the body is not as expected: {error}") from error
    except (ValueError, RecursionError) as error:  # of all parsers, msgspec's among them
        if not _may_be_relayed(body, api):
            raise _invalid_json(error) from error
    else:
        return fields
    return CallFields()


def wants_usage(call: Call) -> bool:
    """Say whether the client asked for the usage of its stream itself."""
    return formats.wants_usage({"stream_options": _options(call.fields)})


def edited_body(turn: Turn) -> tuple[bytes, bytes | memoryview]:
    """Return the body to send upstream, in two parts: the begin, and a long rest as it came.

    Raises `Refused` where it turns out to be no JSON after all.
    """
    call = turn.call
    body, fields = call.body, call.fields
    wanted = _wanted(turn)
    if not wanted:
        return b"", body
    if len(body) < _SHORT or any(getattr(fields, name) for name in wanted):
        return _rejoined(body, wanted), b""
    brace = body.find(b"{") + 1
    inserted = [b'"%b":%b,' % (name.encode(), value) for name, value in wanted.items()]
    begin = b"".join((body[:brace], *inserted))
    return (begin + body[brace:], b"") if len(body) < _COPIED else (begin, memoryview(body)[brace:])


def _wanted(turn: Turn) -> dict[str, bytes]:
    """Return the fields to set, as JSON."""
    call = turn.call
    fields = call.fields
    if _may_be_relayed(call.body, call.api):
        return {}
    wanted = {}
    if turn.salt is not None:
        wanted["cache_salt"] = _encode(turn.salt)
    if fields.stream and call.api in _STREAMED_WITH_OPTIONS:
        options = _options(fields)
        asked = formats.upstream_stream_options({"stream": True, "stream_options": options})
        if asked != options:
            wanted["stream_options"] = _encode(asked)
    if turn.model is not None and turn.model != fields.model:
        wanted["model"] = _encode(turn.model)
    return wanted


def _options(fields: CallFields) -> Any:
    return msgspec.json.decode(fields.stream_options) if fields.stream_options else None


def _rejoined(body: bytes, wanted: dict[str, bytes]) -> bytes:
    try:
        top: dict[str, Any] = _decode_top(body)
    except (ValueError, RecursionError) as error:  # a name that is no text, say
        raise _invalid_json(error) from error
    for name, value in wanted.items():
        top[name] = msgspec.Raw(value)
    return _encode(top)


def _may_be_relayed(body: bytes, api: Api) -> bool:
    """What is no JSON object has no fields that could matter."""
    return api is Api.OTHER and body.lstrip()[:1] != b"{"


def _invalid_json(error: Exception) -> Refused:
    return Refused(400, f"the body is not valid JSON: {error}", code="invalid_json")


def _check_watched(body: bytes, fields: CallFields) -> None:
    for name in _PEERS_ONLY:
        if getattr(fields, name):
            raise _refused_peer_field(name)
    # vLLM hands `vllm_xargs` to the same place as the fields themselves.
    inner = msgspec.json.decode(fields.vllm_xargs) if fields.vllm_xargs else None
    if isinstance(inner, dict) and not inner.keys().isdisjoint(_PEERS_ONLY):
        raise _refused_peer_field("vllm_xargs")
    for name in _OWNED:
        if value := getattr(fields, name):
            msgspec.json.decode(value)
            _refuse_twofold(body, name)


def _refused_peer_field(name: str) -> Refused:
    message = f"'{name}' is for engines among themselves; leave it out"
    return Refused(400, message, param=name, code="field_not_allowed")


def _refuse_twofold(body: bytes, name: str) -> None:
    """Refuse a field that stands there twice or under an escaped name.

    Between quotes, and not escaped, its name can only be a JSON string of its own.
    """
    num_found = body.count(f'"{name}"'.encode())
    if num_found == 1 and b"\\u" not in body:
        return
    if num_found == 0:
        raise Refused(400, f"'{name}' is written with escapes; write it plainly", param=name)
    tops: list[list[str]] = []
    json.loads(body, object_pairs_hook=lambda pairs: tops.append([key for key, _ in pairs]))
    if tops[-1].count(name) > 1:  # the outermost object is complete last
        raise Refused(400, f"'{name}' is given more than once; give it once", param=name)
