"""What would be done with one request now: all candidates, prices and reasons; nothing is done."""

from collections.abc import Mapping
from typing import Any

from warmturn.gateway.apis import path_table
from warmturn.gateway.call_body import read_fields
from warmturn.gateway.recent import decision_data
from warmturn.gateway.steering import Explanation
from warmturn.gateway.turns import Call, Refused

__all__ = ["call_of", "explanation_data"]

_PATHS = path_table()


def call_of(body: bytes, path: str, headers: Mapping[str, str], now: float) -> Call:
    """Return a request as the data path would have read it. Raises `Refused` as it does."""
    api = _PATHS.get(path.partition("?")[0].encode())
    if api is None:
        known = ", ".join(sorted(one.decode() for one in _PATHS))
        raise Refused(404, f"path {path!r} serves no inference; there are: {known}", param="path")
    lower = {name.lower(): value for name, value in headers.items()}
    return Call(api, path, lower, body, read_fields(body, api), now)


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON data: no text of the prompt, and no salt."""
    turn, placement = explanation.turn, explanation.placement
    views = {view.source: view for view in placement.candidates}
    data = decision_data(placement.decision)
    for entry, priced in zip(data["candidates"], placement.decision.candidates, strict=True):
        view = views[priced.source]
        entry |= {
            "is_alive": view.is_alive,
            "believed_tokens": view.hit.any_tokens,
            "trust": view.trust,
            "survival": view.survival,
            "smoothed_requests": view.load.smoothed_requests,
            "queued_prefill_tokens": view.load.queued_prefill_tokens,
            "session_tokens": view.load.session_tokens,
        }
    last = placement.last_source
    return {
        "session": turn.session.key,
        "session_source": turn.session.source,
        "session_name": turn.session.name,
        "is_salted": turn.salt is not None,
        "model": turn.model or turn.call.fields.model,
        "prompt_tokens": placement.prompt_tokens,
        "is_counted": explanation.is_counted,
        "is_first_turn": placement.is_first_turn,
        "previous_replica": None if last is None else last.replica,
        **data,
        "shadow": None if placement.shadow is None else decision_data(placement.shadow),
    }
