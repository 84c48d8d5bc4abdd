import numpy as np
import pytest

from warmturn.fleet import RateLearner
from warmturn.fleet.rates import UNMEASURED


def test_rates_come_back_from_the_times_they_produce():
    learner, rng = RateLearner(), np.random.default_rng(0)
    for _ in range(200):
        tokens, running = int(rng.integers(0, 20_000)), int(rng.integers(0, 30))
        ttft_s = tokens / 5000 + 0.01 * running + 0.05 + rng.normal(0, 0.01)
        learner.observe(prefill_tokens=tokens, num_running=running, ttft_s=ttft_s)
    assert learner.rates.s_per_token == pytest.approx(1 / 5000, rel=0.02)
    assert learner.rates.s_per_running == pytest.approx(0.01, rel=0.2)
    assert learner.rates.base_s == pytest.approx(0.05, abs=0.03)


def test_a_replica_that_becomes_slower_is_followed():
    learner, rng = RateLearner(), np.random.default_rng(0)
    for rate in (8000, 2000):
        for _ in range(150):
            tokens = int(rng.integers(100, 20_000))
            learner.observe(prefill_tokens=tokens, num_running=1, ttft_s=tokens / rate)
    assert learner.rates.s_per_token == pytest.approx(1 / 2000, rel=0.1)


def test_before_there_are_answers_and_when_they_say_nothing_the_order_of_magnitude_stands():
    learner = RateLearner()
    assert learner.rates == UNMEASURED
    for _ in range(20):
        learner.observe(prefill_tokens=1000, num_running=1, ttft_s=-1.0)
    assert learner.num_answers == 0


def test_equal_answers_never_give_a_negative_or_absurd_rate():
    learner = RateLearner()
    for _ in range(2000):
        learner.observe(prefill_tokens=1000, num_running=2, ttft_s=0.5)
    rates = learner.rates
    predicted = 1000 * rates.s_per_token + 2 * rates.s_per_running + rates.base_s
    assert predicted == pytest.approx(0.5, rel=0.05)
    learner.observe(prefill_tokens=9000, num_running=0, ttft_s=4.0)
    assert 0 <= learner.rates.s_per_token < 0.01
