import pytest

from warmturn.check.clocks import clocks_in, cut_to_day


def told(text):
    return [(text[c.start : c.end], c.has_date, c.has_time) for c in clocks_in(text)]


@pytest.mark.parametrize(
    ("text", "clock", "has_date", "has_time"),
    [
        ("at 2026-11-29T10:03:11Z.", "2026-11-29T10:03:11Z", True, True),
        ("at 2026-11-29 10:03:11.123+02:00 ok", "2026-11-29 10:03:11.123+02:00", True, True),
        ("Sun, 29 Nov 2026 10:03:11 GMT", "Sun, 29 Nov 2026 10:03:11 GMT", True, True),
        ("Thursday, September 17, 2026 9:41 AM", None, True, True),
        ("am 29.11.2026, 10:03 Uhr", "29.11.2026, 10:03", True, True),
        ("le 29 novembre 2026 à 10h03", "29 novembre 2026 à 10h03", True, True),
        ("el 29 de noviembre de 2026", "29 de noviembre de 2026", True, False),
        ("2026年11月29日 10:03", "2026年11月29日 10:03", True, True),
        ("11/29/2026", "11/29/2026", True, False),
        ("it is 10:03 now", "10:03", False, True),
        ("3pm", "3pm", False, True),
        ("epoch 1795946591", "1795946591", True, True),
        ("ms 1795946591123", "1795946591123", True, True),
        ("20261129T100301Z", None, True, True),
    ],
)
def test_clocks_are_found_however_they_are_written(text, clock, has_date, has_time):
    (found,) = told(text)
    assert found[1:] == (has_date, has_time)
    assert clock is None or found[0].startswith(clock)


@pytest.mark.parametrize(
    "text",
    ["", "no digits", "12 apples", "room 404", "3.14", "it may sat", "+49 30 1234567", "a:b"],
)
def test_numbers_alone_are_no_clocks(text):
    assert told(text) == []


def test_clocks_far_apart_are_two_and_found_with_their_names():
    text = "Wednesday, 3 March 2027." + " x" * 200 + " 10:03 " + " y" * 200 + " Sunday, Nov 29"
    assert [found[0].rstrip(".") for found in told(text)] == [
        "Wednesday, 3 March 2027",
        "10:03",
        "Sunday, Nov 29",
    ]


def test_only_a_clock_that_says_so_is_now():
    (now,) = clocks_in("Current time: 10:03")
    (then,) = clocks_in("The bakery opens at 10:03")
    assert (now.is_announced, then.is_announced) == (True, False)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("It is 2026-11-29 10:03.", "It is 2026-11-29."),
        ("2026-11-29T10:03:11+00:00 x", "2026-11-29 x"),
        ("Sunday, November 29, 2026 9:41 AM.", "Sunday November 29 2026."),
        ("at 10:03", "at 10:03"),
        ("20261129T100301Z", "20261129"),
    ],
)
def test_a_clock_with_a_date_is_cut_to_the_day(text, day):
    assert cut_to_day(text) == day
