"""A log's requests as conversations: who followed whom, and after how long.

Think time is from the end of an answer to the next request of the same conversation. Where a log
has no ends it is from start to start, which is longer by the answer; that is said, never hidden.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from warmturn.formats.record import LoggedRequest
from warmturn.session.identity import identify
from warmturn.session.returning import StopKind, stop_kind

__all__ = ["Basis", "Gap", "HistoryTurn", "gaps", "history_turn"]

Basis: TypeAlias = Literal["answer-end", "request-start"]


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """One request, reduced to what think time needs. Seconds since any origin; tokens."""

    session: str
    start_s: float
    end_s: float | None = None
    stop: StopKind = "other"
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """The time after one answer: until the next turn, or until the log ended."""

    session: str
    num_turns: int
    """Of the conversation before the gap, from 1."""
    seconds: float
    before: HistoryTurn
    after: HistoryTurn | None
    """None: the log ended first; it may still come back."""
    basis: Basis

    @property
    def is_open(self) -> bool:
        """Whether the log ended before another turn."""
        return self.after is None


def history_turn(request: LoggedRequest) -> HistoryTurn | None:
    """Return what of a logged request matters here; None where it has no time.

    Conversations without a name are told apart by their beginning.
    """
    if request.timestamp_s is None:
        return None
    return HistoryTurn(
        _session_of(request),
        request.timestamp_s,
        request.end_s,
        stop_kind(request.finish_reason, has_tool_calls=_has_tool_calls(request)),
        request.prompt_tokens,
        request.cached_tokens,
        request.completion_tokens,
        request.model,
    )


def gaps(turns: Iterable[HistoryTurn], *, log_end_s: float | None = None) -> list[Gap]:
    """Return the gap after each turn, conversations in order of their first turn.

    A request that starts before the answer before it has ended (a parallel one, a retry) gives no
    think time, and the later of the two ends counts. `log_end_s` cuts the last gaps off; None takes
    the last time in the log.
    """
    ordered = sorted(turns, key=lambda turn: turn.start_s)
    if log_end_s is None:
        log_end_s = max((turn.end_s or turn.start_s for turn in ordered), default=0.0)
    sessions: dict[str, list[HistoryTurn]] = {}
    for turn in ordered:
        sessions.setdefault(turn.session, []).append(turn)
    return [gap for session, own in sessions.items() for gap in _gaps_of(session, own, log_end_s)]


def _gaps_of(session: str, turns: list[HistoryTurn], log_end_s: float) -> Iterable[Gap]:
    latest = turns[0]
    for number, turn in enumerate(turns):
        latest = turn if _end(turn) >= _end(latest) else latest
        after = turns[number + 1] if number + 1 < len(turns) else None
        basis: Basis = "request-start" if latest.end_s is None else "answer-end"
        seconds = (log_end_s if after is None else after.start_s) - _end(latest)
        if seconds >= 0:
            yield Gap(session, number + 1, seconds, latest, after, basis)


def _end(turn: HistoryTurn) -> float:
    return turn.start_s if turn.end_s is None else turn.end_s


def _session_of(request: LoggedRequest) -> str:
    if request.conversation_id is not None:
        return request.conversation_id
    body: dict[str, Any] = {
        "model": request.model,
        "messages": None if request.messages is None else list(request.messages),
        "tools": None if request.tools is None else list(request.tools),
        "prompt": request.prompt_text,
    }
    if body["messages"] is None and body["prompt"] is None and request.prompt_token_ids:
        body["prompt"] = list(request.prompt_token_ids)
    given = {name: value for name, value in body.items() if value is not None}
    once = f"{request.source}:{request.line}"
    return identify({}, given, salt=request.cache_salt, once=once).key


def _has_tool_calls(request: LoggedRequest) -> bool:
    return bool(request.reply and request.reply.get("tool_calls"))
