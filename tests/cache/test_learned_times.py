"""What is learned of a machine from what things took."""

import pytest

from warmturn.cache.learned_times import PrefillTime, TransferTime


def test_a_line_is_found_from_loads_of_several_sizes():
    time = TransferTime(0.001, 1e9)
    for num_bytes in [1e6, 5e6, 2e7, 1e7] * 10:
        time.observe(int(num_bytes), 0.004 + num_bytes / 2e8, now=0.0)
    assert time.predict(3e7, now=0.0) == pytest.approx(0.004 + 3e7 / 2e8, rel=0.03)
    assert time.predict(1e6, now=0.0) == pytest.approx(0.004 + 1e6 / 2e8, rel=0.05)


def test_a_store_that_slows_down_a_hundredfold_is_believed_within_a_few_loads():
    time = TransferTime(0.001, 1e9)
    for _ in range(30):
        time.observe(10_000_000, 0.011, now=0.0)
    for _ in range(3):
        time.observe(10_000_000, 1.0, now=0.0)
    assert time.predict(1e7, now=0.0) > 0.2
    for _ in range(30):
        time.observe(10_000_000, 1.0, now=0.0)
    assert time.predict(1e7, now=0.0) == pytest.approx(1.0, rel=0.05)


def test_what_was_learned_fades_so_that_a_slow_tier_is_tried_again():
    time = TransferTime(0.001, 1e9)
    time.observe(10_000_000, 5.0, now=0.0)
    assert time.predict(1e7, now=0.0) > 1.0
    assert time.predict(1e7, now=600.0) < 0.02


@pytest.mark.parametrize("seconds", [0.0, 1e-9])
def test_time_never_runs_backwards(seconds):
    time = TransferTime(0.001, 1e9)
    for num_bytes in (10, 10_000_000):
        time.observe(num_bytes, seconds, now=0.0)
    fixed_s, s_per_byte = time.line(now=0.0)
    assert fixed_s > 0
    assert s_per_byte > 0


def test_prefill_grows_faster_than_its_length_where_attention_is_felt():
    time = PrefillTime()
    for start, stop in [(0, 100), (0, 1000), (1000, 3000), (0, 4000), (4000, 4100)] * 8:
        tokens, pairs = stop - start, (stop**2 - start**2) / 2
        time.observe(tokens, pairs, 0.002 + tokens * 1e-3 + pairs * 1e-7, now=0.0)
    expected = 0.002 + 2.0 + 2000**2 / 2 * 1e-7
    assert time.predict(0, 2000, now=0.0) == pytest.approx(expected, rel=0.05)
    assert time.predict(500, 500, now=0.0) == 0.0
