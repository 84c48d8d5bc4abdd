import pytest

from warmturn.cost import CapacityLine, fit_sequence
from warmturn.errors import InvalidInput


def line(length, fixed=5_000, slope=20.0, available=1e9):
    return CapacityLine(length, available, available * length / (fixed + slope * length))


def test_slope_and_constant_are_told_apart():
    fit = fit_sequence([line(100), line(1_000), line(10_000)])
    assert fit.slope_bytes == pytest.approx(20)
    assert fit.fixed_bytes == pytest.approx(5_000)


def test_the_quotient_of_one_line_alone_would_be_wrong_at_another_length():
    fit = fit_sequence([line(1_000), line(10_000)])
    assert fit.num_sequences(1e6, 100) == int(1e6 / (5_000 + 2_000))
    alone = line(10_000)
    assert int(1e6 / (alone.available_bytes / alone.reported_tokens * 100)) > 400


@pytest.mark.parametrize(
    "lines", [[], [line(100)], [line(100), line(100)], [line(100), CapacityLine(1_000, 1e9, 0)]]
)
def test_lines_that_cannot_tell_are_refused(lines):
    with pytest.raises(InvalidInput):
        fit_sequence(lines)
