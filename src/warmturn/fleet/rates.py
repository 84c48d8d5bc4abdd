"""How fast one replica answers, learned from its own times to the first token.

    ttft_s = s_per_token * tokens to prefill (queued and own) + s_per_running * requests + base_s

Recursive least squares over the answers, older ones fading; a rate below zero counts as zero.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["LearnedRates", "RateLearner"]

_FADING = 0.98
"""Weight of the past per answer: about the last fifty count."""
_MIN_ANSWERS = 8
_INITIAL_VARIANCE = 1e6
_TOKENS_UNIT = 1000.0  # tokens are some thousand times requests: scaled for the arithmetic's sake


@dataclass(frozen=True, slots=True)
class LearnedRates:
    """Predicts a time to first token; seconds.

    Source: answers of this replica. Lifetime: about fifty answers. Missing: `UNMEASURED`.
    """

    s_per_token: float
    s_per_running: float
    base_s: float


UNMEASURED = LearnedRates(s_per_token=1 / 8000, s_per_running=0.002, base_s=0.02)
"""Before the first answers: 8,000 tokens per second, the order of an 8B model on one large GPU.
Only the ratio of queue to prefill matters for the choice, and both scale with it."""


class RateLearner:
    """Answers in, rates out; O(1) per answer."""

    def __init__(self) -> None:
        self.num_answers = 0
        self._weights = np.array(
            [UNMEASURED.s_per_token * _TOKENS_UNIT, UNMEASURED.s_per_running, UNMEASURED.base_s]
        )
        self._covariance = np.eye(3) * _INITIAL_VARIANCE

    def observe(self, *, prefill_tokens: int, num_running: int, ttft_s: float) -> None:
        """Count one answer: tokens that were ahead of it and its own, uncached ones only."""
        if ttft_s < 0:
            return
        x = np.array([prefill_tokens / _TOKENS_UNIT, num_running, 1.0])
        projected = self._covariance @ x
        gain = projected / (_FADING + x @ projected)
        self._weights = self._weights + gain * (ttft_s - x @ self._weights)
        spread = (self._covariance - np.outer(gain, projected)) / _FADING
        # An idle direction must not grow for ever: one odd answer would then rule it.
        self._covariance = np.clip((spread + spread.T) / 2, -_INITIAL_VARIANCE, _INITIAL_VARIANCE)
        self.num_answers += 1

    @property
    def rates(self) -> LearnedRates:
        """The rates as of the last answer; `UNMEASURED` before there are enough."""
        if self.num_answers < _MIN_ANSWERS:
            return UNMEASURED
        per_thousand, s_per_running, base_s = (max(0.0, float(w)) for w in self._weights)
        if per_thousand == 0.0:  # all answers alike: prefill cannot cost nothing
            return UNMEASURED
        return LearnedRates(per_thousand / _TOKENS_UNIT, s_per_running, base_s)
