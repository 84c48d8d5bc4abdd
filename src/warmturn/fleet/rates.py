"""How fast one replica answers, learned from its own times to the first token.

    ttft_s = s_per_token * tokens to prefill (queued and own) + s_per_running * requests + base_s

Least squares over the answers, older ones fading, drawn a little towards what is assumed before the
first answer: what the answers do not tell stays as it was. A rate below zero counts as zero.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["LearnedRates", "RateLearner"]

_FADING = 0.98
"""Weight of the past per answer: about the last fifty count."""
_MIN_ANSWERS = 8
_PRIOR_WEIGHT = 1e-3
"""Of the assumption against one answer."""
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
        prior = (UNMEASURED.s_per_token * _TOKENS_UNIT, UNMEASURED.s_per_running, UNMEASURED.base_s)
        self._prior = np.array(prior)
        self._moments = np.zeros((3, 3))
        self._products = np.zeros(3)

    def observe(self, *, prefill_tokens: int, num_running: int, ttft_s: float) -> None:
        """Count one answer: tokens that were ahead of it and its own, uncached ones only."""
        if ttft_s < 0:
            return
        x = np.array([prefill_tokens / _TOKENS_UNIT, num_running, 1.0])
        self._moments = _FADING * self._moments + np.outer(x, x)
        self._products = _FADING * self._products + ttft_s * x
        self.num_answers += 1

    @property
    def rates(self) -> LearnedRates:
        """The rates as of the last answer; `UNMEASURED` before there are enough. Some 20 µs."""
        if self.num_answers < _MIN_ANSWERS:
            return UNMEASURED
        ridge = _PRIOR_WEIGHT * np.eye(3)
        products = self._products + _PRIOR_WEIGHT * self._prior
        weights = np.linalg.solve(self._moments + ridge, products)
        per_thousand, s_per_running, base_s = (max(0.0, float(weight)) for weight in weights)
        if per_thousand == 0.0:  # a queue nobody saw, perhaps: prefill cannot cost nothing
            return UNMEASURED
        return LearnedRates(per_thousand / _TOKENS_UNIT, s_per_running, base_s)
