from xml.etree import ElementTree as ET

import pytest

from warmturn.report.chart import Axis, Line, Marker, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def test_a_chart_is_one_svg_with_its_names_escaped():
    chart = line_chart(
        "a < b",
        Axis("seconds", 1, 1000, is_log=True),
        Axis("share", 0, 1),
        [Line("one & two", [(1, 0), (10, 0.5), (1000, 1)]), Line("steps", [(1, 1)], is_step=True)],
        [Marker("horizon", 35)],
    )
    picture = ET.fromstring(chart)
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"a < b", "one & two", "steps", "horizon", "seconds", "share"} <= set(texts)
    assert {"1", "10", "100", "1,000"} <= set(texts), "ticks at powers of ten"


@pytest.mark.parametrize(
    ("axis", "value", "share"),
    [
        (Axis("", 0, 10), 2.5, 0.25),
        (Axis("", 0, 10), 99, 1),
        (Axis("", 1, 100, is_log=True), 10, 0.5),
        (Axis("", 1, 100, is_log=True), 0, 0),
        (Axis("", 5, 5), 5, 0),
    ],
)
def test_values_lie_between_the_ends(axis, value, share):
    assert axis.share(value) == pytest.approx(share)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0, 0, [0])],
)
def test_ticks_are_round(low, high, ticks):
    assert Axis("", low, high).ticks() == pytest.approx(ticks)
