"""The last decisions, for `/warmturn/decisions`: who went where, why, and what came of it.

Of a turn only what can be shown is kept: no body, no header, no salt.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from warmturn.gateway.turns import Ending, Outcome, Turn, Usage
from warmturn.router import Decision, Placement

__all__ = ["RecentDecisions", "decision_data"]

DEFAULT_SIZE = 256
"""Turns. Their views are kept to show prices, some kilobytes each, so a few hundred."""


_Placed: TypeAlias = tuple[Placement, str, str, str | None]
"""Placement, what named the session, API, model."""
_Ended: TypeAlias = tuple[int, Ending, int, Usage | None, float | None]
"""Number of the turn, ending, status, usage, time to the first byte."""


class RecentDecisions:
    """A `TurnObserver` that remembers the last turns, each with its last decision.

    Rings: a turn's number modulo their size is its place, so that looking on is two assignments.
    """

    def __init__(self, *, unix_offset_s: float, size: int = DEFAULT_SIZE) -> None:
        """`unix_offset_s`: Unix time less the gateway's clock."""
        self._unix_offset_s, self._size = unix_offset_s, size
        self._placed: list[_Placed | None] = [None] * size
        self._ended: list[_Ended | None] = [None] * size
        self._failures: dict[int, list[str]] = {}

    def placed(self, turn: Turn, now: float) -> None:
        """Remember where it goes."""
        del now
        placement = turn.placement
        if placement is not None:
            self._placed[turn.number % self._size] = (
                *(placement, turn.session.source),
                *(turn.call.api, turn.model),
            )

    def first_byte(self, turn: Turn, now: float) -> None:
        """Nothing to remember: the end tells it."""

    def failed(self, turn: Turn, why: str, now: float) -> None:
        """Remember what went wrong where."""
        del now
        self._failures.setdefault(turn.number, []).append(f"{turn.source}: {why}")
        if len(self._failures) > self._size:
            del self._failures[next(iter(self._failures))]

    def ended(self, turn: Turn, outcome: Outcome, now: float) -> None:
        """Remember what came of it, without the reply."""
        del now
        sent_s, first_s = turn.sent_s, turn.first_byte_s
        ttft_s = None if sent_s is None or first_s is None else first_s - sent_s
        ended = turn.number, outcome.ending, outcome.status, outcome.usage, ttft_s
        self._ended[turn.number % self._size] = ended

    def listed(
        self, *, session: str | None = None, replica: str | None = None, limit: int = 50
    ) -> list[dict[str, Any]]:
        """Return decisions as JSON data, newest first, with prices and reasons."""
        found: list[dict[str, Any]] = []
        recent = [entry for entry in self._placed if entry is not None]
        for entry in sorted(recent, key=lambda entry: -entry[0].number):
            placement = entry[0]
            if session is not None and placement.session != session:
                continue
            if replica is not None and _replica_of(placement) != replica:
                continue
            found.append(self._data(entry))
            if len(found) >= limit:
                break
        return found

    def of_session(self, session: str) -> Iterator[dict[str, Any]]:
        """Yield a session's remembered turns, newest first."""
        yield from self.listed(session=session, limit=self._size)

    def _data(self, entry: _Placed) -> dict[str, Any]:
        placement, session_source, api, model = entry
        number = placement.number
        ended = self._ended[number % self._size]
        ending = status = usage = ttft_s = None
        if ended is not None and ended[0] == number:
            _, ending, status, usage, ttft_s = ended
        return {
            "number": number,
            "at_s": placement.placed_s + self._unix_offset_s,
            "session": placement.session,
            "session_source": session_source,
            "api": api,
            "model": model,
            "failures": self._failures.get(number, []),
            **decision_data(placement.decision),
            "prompt_tokens": placement.prompt_tokens,
            "ending": ending,
            "status": status,
            "answered_prompt_tokens": None if usage is None else usage.prompt_tokens,
            "delivered_cached_tokens": None if usage is None else usage.cached_tokens,
            "completion_tokens": None if usage is None else usage.completion_tokens,
            "ttft_s": ttft_s,
            "shadow": None if placement.shadow is None else decision_data(placement.shadow),
        }


def decision_data(decision: Decision) -> dict[str, Any]:
    """Return a decision as JSON data: the choice first, then every candidate with its terms."""
    source = decision.source
    return {
        "policy": decision.policy,
        "replica": None if source is None else source.replica,
        "rank": None if source is None else source.rank,
        "reason": decision.reason,
        "predicted_cached_tokens": decision.predicted_tokens,
        "candidates": [
            {
                "replica": entry.source.replica,
                "rank": entry.source.rank,
                "price": entry.price,
                "reason": entry.reason,
                "terms": entry.terms,
            }
            for entry in decision.candidates
        ],
    }


def _replica_of(placement: Placement) -> str | None:
    return None if placement.source is None else str(placement.source.replica)
