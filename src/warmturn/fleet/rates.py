"""How fast one replica answers, learned from its own times to the first token.

    ttft_s = s_per_token * tokens to prefill (queued and own) + s_per_running * requests + base_s

Least squares over the answers, older ones fading, drawn a little towards what is assumed before the
first answer: what the answers do not tell stays as it was. A rate below zero counts as zero. Plain
floats: three unknowns are too few for arrays to pay, and this stands on the path of every answer.
"""

from dataclasses import dataclass

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

_PRIOR = (UNMEASURED.s_per_token * _TOKENS_UNIT, UNMEASURED.s_per_running, UNMEASURED.base_s)


class RateLearner:
    """Answers in, rates out; O(1) per answer."""

    def __init__(self) -> None:
        self.num_answers = 0
        # Fading sums over answers of x*x, x*r, x, r*r, r, 1 and of x*ttft, r*ttft, ttft,
        # x the thousands of tokens and r the requests.
        self._moments = (0.0,) * 6
        self._products = (0.0,) * 3

    def observe(self, *, prefill_tokens: int, num_running: int, ttft_s: float) -> None:
        """Count one answer: tokens that were ahead of it and its own, uncached ones only."""
        if ttft_s < 0:
            return
        x, r = prefill_tokens / _TOKENS_UNIT, float(num_running)
        xx, xr, x1, rr, r1, one = self._moments
        xt, rt, t = self._products
        f = _FADING
        self._moments = (
            f * xx + x * x,
            f * xr + x * r,
            f * x1 + x,
            f * rr + r * r,
            f * r1 + r,
            (f * one + 1.0),
        )
        self._products = f * xt + x * ttft_s, f * rt + r * ttft_s, f * t + ttft_s
        self.num_answers += 1

    @property
    def rates(self) -> LearnedRates:
        """The rates as of the last answer; `UNMEASURED` before there are enough. Some 2 µs."""
        if self.num_answers < _MIN_ANSWERS:
            return UNMEASURED
        weights = self._solved()
        per_thousand, s_per_running, base_s = (max(0.0, weight) for weight in weights)
        if per_thousand == 0.0:  # a queue nobody saw, perhaps: prefill cannot cost nothing
            return UNMEASURED
        return LearnedRates(per_thousand / _TOKENS_UNIT, s_per_running, base_s)

    def _solved(self) -> tuple[float, float, float]:
        """Solve (moments + ridge) w = products + ridge * prior by Cholesky; the ridge keeps it so."""
        xx, xr, x1, rr, r1, one = self._moments
        a, b, c = (
            product + _PRIOR_WEIGHT * prior
            for product, prior in zip(self._products, _PRIOR, strict=True)
        )
        d1 = xx + _PRIOR_WEIGHT
        l21, l31 = xr / d1, x1 / d1
        d2 = rr + _PRIOR_WEIGHT - l21 * xr
        l32 = (r1 - l31 * xr) / d2
        d3 = one + _PRIOR_WEIGHT - l31 * x1 - l32 * l32 * d2
        b -= l21 * a
        c -= l31 * a + l32 * b
        base = c / d3
        running = b / d2 - l32 * base
        return a / d1 - l21 * running - l31 * base, running, base
