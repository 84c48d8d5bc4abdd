import pytest

from warmturn.report.sides import aligned_sides, visible


def test_both_sides_are_cut_around_the_place_where_they_part():
    sides = aligned_sides("the time is 10:03, be brief", "the time is 10:05, be brief", width=24)
    assert sides.shared == "…ime is 10:0"
    assert sides.earlier.startswith("3, be")
    assert sides.later.startswith("5, be")
    assert len(sides.shared + sides.earlier) <= 24


def test_a_side_that_ends_at_the_break_is_empty():
    sides = aligned_sides("abc", "abcdef", width=40)
    assert (sides.shared, sides.earlier, sides.later) == ("abc", "", "def")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202eback", "\\u202eback"),
        ("\ud800", "\\ud800"),
        ("naïve 中国 🙂", "naïve 中国 🙂"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_could_move_the_cursor_is_written_as_an_escape(raw, shown):
    assert visible(raw) == shown


def test_escapes_count_into_the_width():
    sides = aligned_sides("\n" * 60 + "a", "\n" * 60 + "b", width=30)
    assert len(sides.shared) <= 15
    assert sides.shared.startswith("…")
