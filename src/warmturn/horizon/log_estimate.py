"""The horizon from a request log: what came in per second, and which gaps hit and missed."""

from collections.abc import Sequence
from dataclasses import dataclass

from warmturn.cost import horizon_s
from warmturn.errors import InvalidInput
from warmturn.horizon.think_report import observed_bracket
from warmturn.horizon.turn_gaps import GapBracket
from warmturn.session.turn_history import Gap, HistoryTurn

__all__ = ["LogEstimate", "estimate_from_log"]


@dataclass(frozen=True, slots=True)
class LogEstimate:
    """What one log says. Rates in tokens per second over its span."""

    window_s: float
    num_requests: int
    miss_tokens_per_s: float
    generated_tokens_per_s: float
    pinned_tokens: float | None
    """Held by running requests on average; None where the log has no ends of answers."""
    bracket: GapBracket | None
    """From the log's own hits and misses; None where it counts no cached tokens."""
    horizon_s: float | None
    """`(P - A) / R`; None without a pool size."""

    @property
    def new_tokens_per_s(self) -> float:
        """All that enters."""
        return self.miss_tokens_per_s + self.generated_tokens_per_s


def estimate_from_log(
    turns: Sequence[HistoryTurn],
    found: Sequence[Gap],
    *,
    pool_tokens: float | None = None,
    pinned_tokens: float | None = None,
) -> LogEstimate:
    """Return the estimate; the log has to hold all of one replica's traffic for the rates.

    Raises `InvalidInput` where it has no token counts or spans no time.
    """
    counted = [turn for turn in turns if turn.prompt_tokens is not None]
    if not counted:
        raise InvalidInput(
            f"{len(turns)} requests with times, none with token counts (usage.prompt_tokens): think "
            "times can be read from it (warmturn thinktime), rates cannot"
        )
    first = min(turn.start_s for turn in turns)
    last = max(turn.end_s or turn.start_s for turn in turns)
    if last <= first:
        raise InvalidInput("all requests of the log have one time; a rate needs a span")
    span = last - first
    missed = sum((t.prompt_tokens or 0) - (t.cached_tokens or 0) for t in counted) / span
    made = sum(t.completion_tokens or 0 for t in counted) / span
    pinned = pinned_tokens if pinned_tokens is not None else _pinned(counted, span)
    horizon = None
    if pool_tokens is not None:
        horizon = horizon_s(
            pool_tokens=pool_tokens, pinned_tokens=pinned or 0.0, new_tokens_per_s=missed + made
        )
    bracket = observed_bracket(found)
    return LogEstimate(span, len(turns), missed, made, pinned, bracket, horizon)


def _pinned(turns: Sequence[HistoryTurn], span: float) -> float | None:
    ended = [turn for turn in turns if turn.end_s is not None]
    if not ended:
        return None
    held = sum(
        max(0.0, (turn.end_s or 0.0) - turn.start_s)
        * ((turn.prompt_tokens or 0) + (turn.completion_tokens or 0))
        for turn in ended
    )
    return held / span
