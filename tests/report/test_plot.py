import re
from xml.etree import ElementTree as ET

from warmturn.report.plot import reuse_plot


def test_each_share_is_a_bar_of_its_height():
    svg = ET.fromstring(reuse_plot([1.0, 0.5], name="one", fail_under=0.9))
    bars = svg.findall("rect")
    assert [float(bar.get("height")) for bar in bars] == [56.0, 28.0]
    assert [bar.get("class") for bar in bars] == ["high", "low"]
    assert svg.find("title").text == "Reuse per turn of one. turn 2: 100 %, turn 3: 50 %"


def test_nothing_reused_is_still_seen():
    svg = ET.fromstring(reuse_plot([0.0], name="one", fail_under=0.9))
    assert float(svg.find("rect").get("height")) == 1.0


def test_of_a_long_conversation_the_newest_turns_are_drawn_under_their_own_numbers():
    svg = reuse_plot([1.0] * 100, name="one", fail_under=0.9)
    assert svg.count("<rect") == 60
    assert re.findall(r"turn (\d+)", svg)[-1] == "101"


def test_the_name_is_escaped():
    assert "<b>" not in reuse_plot([1.0], name="<b>", fail_under=0.9)
