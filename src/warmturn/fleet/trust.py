"""How far to believe the index: the state of a source, and what it delivered of what it promised.

| number | source | unit | lifetime | missing |
| --- | --- | --- | --- | --- |
| state credit | event order of the source | share 0-1 | until the next batch | 0: no credit |
| delivered share | `cached_tokens` of answers against the prediction | share 0-1 | last some 20 | 1 |

Trust is their product. It multiplies the credit of a prefix, never the load.
"""

from warmturn.fleet.sequence import SourceState

__all__ = ["STATE_CREDIT", "HitFeedback", "trust_of"]

STATE_CREDIT: dict[SourceState, float] = {
    SourceState.EXACT: 1.0,
    SourceState.DEGRADED: 0.5,
    SourceState.UNKNOWN: 0.0,
}
"""Half for a source with holes is a choice, not a measurement: feedback moves it from there."""

_WEIGHT = 0.1
"""Of one answer: about the last twenty count."""
_MIN_ANSWERS = 8
_COLLAPSED_BELOW = 0.25


class HitFeedback:
    """Predicted against delivered cached tokens of one source; only answers with a prediction."""

    def __init__(self) -> None:
        self.num_answers = 0
        self.predicted_tokens = 0
        self.delivered_tokens = 0
        self._share = 1.0

    @property
    def delivered_share(self) -> float:
        """Recent share of predicted tokens that were delivered, 0 to 1."""
        return self._share

    @property
    def has_collapsed(self) -> bool:
        """Say whether what is predicted no longer comes: a restart nobody announced, perhaps."""
        return self.num_answers >= _MIN_ANSWERS and self._share < _COLLAPSED_BELOW

    def observe(self, *, predicted_tokens: int, delivered_tokens: int) -> None:
        """Count one answer. More than predicted counts as all of it."""
        if predicted_tokens <= 0:
            return
        self.num_answers += 1
        self.predicted_tokens += predicted_tokens
        self.delivered_tokens += delivered_tokens
        share = min(1.0, max(0, delivered_tokens) / predicted_tokens)
        self._share += _WEIGHT * (share - self._share)

    def reset(self) -> None:
        """Begin anew: the source was cleared, replayed, or restarted."""
        self.num_answers = 0
        self._share = 1.0


def trust_of(state: SourceState, feedback: HitFeedback | None = None) -> float:
    """Return the share 0-1 of a promised prefix that may be counted on."""
    delivered = 1.0 if feedback is None else feedback.delivered_share
    return STATE_CREDIT[state] * delivered
