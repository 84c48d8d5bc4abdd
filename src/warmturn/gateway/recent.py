"""The last decisions, for `/warmturn/decisions`: who went where, why, and what came of it.

Of a turn only what can be shown is kept: no body, no header, no salt.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warmturn.gateway.turns import Outcome, Turn
from warmturn.router import Decision, Placement

__all__ = ["RecentDecisions", "decision_data"]

DEFAULT_SIZE = 256
"""Turns. Their views are kept to show prices, some kilobytes each, so a few hundred."""


@dataclass(slots=True)
class _Recent:
    placement: Placement
    session_source: str
    api: str
    model: str | None
    failures: tuple[str, ...] = ()
    outcome: Outcome | None = None
    ttft_s: float | None = None


class RecentDecisions:
    """A `TurnObserver` that remembers the last turns, each with its last decision."""

    def __init__(self, *, unix_offset_s: float, size: int = DEFAULT_SIZE) -> None:
        """`unix_offset_s`: Unix time less the gateway's clock."""
        self._unix_offset_s, self._size = unix_offset_s, size
        self._recent: OrderedDict[int, _Recent] = OrderedDict()  # by number, oldest first

    def placed(self, turn: Turn, now: float) -> None:
        """Remember where it goes."""
        del now
        placement = turn.placement
        if placement is None:
            return
        known = self._recent.get(turn.number)
        if known is not None:
            known.placement = placement
            return
        api, source = turn.call.api, turn.session.source
        self._recent[turn.number] = _Recent(placement, source, api, turn.model)
        if len(self._recent) > self._size:
            self._recent.popitem(last=False)

    def first_byte(self, turn: Turn, now: float) -> None:
        """Nothing to remember: the end tells it."""

    def failed(self, turn: Turn, why: str, now: float) -> None:
        """Remember what went wrong where."""
        del now
        known = self._recent.get(turn.number)
        if known is not None:
            known.failures += (f"{turn.source}: {why}",)

    def ended(self, turn: Turn, outcome: Outcome, now: float) -> None:
        """Remember what came of it, without the reply."""
        del now
        known = self._recent.get(turn.number)
        if known is None:
            return
        known.outcome = Outcome(outcome.ending, outcome.status, outcome.usage)
        if turn.sent_s is not None and turn.first_byte_s is not None:
            known.ttft_s = turn.first_byte_s - turn.sent_s

    def listed(
        self, *, session: str | None = None, replica: str | None = None, limit: int = 50
    ) -> list[dict[str, Any]]:
        """Return decisions as JSON data, newest first, with prices and reasons."""
        found: list[dict[str, Any]] = []
        for number in reversed(self._recent):
            recent = self._recent[number]
            placement = recent.placement
            if session is not None and placement.session != session:
                continue
            if replica is not None and _replica_of(placement) != replica:
                continue
            found.append(self._data(number, recent))
            if len(found) >= limit:
                break
        return found

    def of_session(self, session: str) -> Iterator[dict[str, Any]]:
        """Yield a session's remembered turns, newest first."""
        yield from self.listed(session=session, limit=self._size)

    def _data(self, number: int, recent: _Recent) -> dict[str, Any]:
        placement, outcome = recent.placement, recent.outcome
        usage = None if outcome is None else outcome.usage
        return {
            "number": number,
            "at_s": placement.placed_s + self._unix_offset_s,
            "session": placement.session,
            "session_source": recent.session_source,
            "api": recent.api,
            "model": recent.model,
            "failures": list(recent.failures),
            **decision_data(placement.decision),
            "prompt_tokens": placement.prompt_tokens,
            "ending": None if outcome is None else outcome.ending,
            "status": None if outcome is None else outcome.status,
            "answered_prompt_tokens": None if usage is None else usage.prompt_tokens,
            "delivered_cached_tokens": None if usage is None else usage.cached_tokens,
            "completion_tokens": None if usage is None else usage.completion_tokens,
            "ttft_s": recent.ttft_s,
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
