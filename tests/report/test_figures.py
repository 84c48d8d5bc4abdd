import math

import pytest

from warmturn.report.figures import bytes_text, seconds_text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (131_072, "128 KiB"),
        (806_092_800, "768.8 MiB"),
        (math.inf, "no finite size"),
    ],
)
def test_sizes_for_people(num_bytes, text):
    assert bytes_text(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.031, "0.031 s"),
        (34.6, "35 s"),
        (900, "15.0 min"),
        (8100, "2.2 h"),
        (math.inf, "for ever"),
    ],
)
def test_times_for_people(seconds, text):
    assert seconds_text(seconds) == text
