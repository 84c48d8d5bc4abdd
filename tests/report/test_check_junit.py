from dataclasses import replace
from xml.etree import ElementTree as ET

from tests.support.checked import checked, clock, clock_log, conversation
from tests.support.logged import tool
from warmturn.report import check_suite


def suites(log):
    return ET.fromstring("".join(check_suite(log)).encode())


def test_a_suite_per_conversation_and_a_case_per_later_turn():
    root = suites(clock_log())
    assert root.attrib == {"name": "warmturn check", "tests": "4", "failures": "2"}
    names = [suite.get("name") for suite in root]
    assert names == ["clock", "clean"]
    assert [case.get("name") for case in root[1]] == ["turn 2 (clean-1)", "turn 3 (clean-2)"]


def test_a_failing_turn_has_cause_place_both_sides_and_fix():
    failure = suites(clock_log()).find(".//failure")
    assert failure.get("type") == "client.timestamp_in_system"
    assert "% reused" in failure.get("message")
    for text in ("in messages[0]", "cached ", "sent now", "fix: "):
        assert text in failure.text


def test_a_known_failure_is_skipped():
    known = frozenset({("clock", n, "client.timestamp_in_system") for n in (1, 2)})
    root = suites(clock_log(known=known))
    assert root.get("failures") == "0"
    assert len(root.findall(".//skipped")) == 2


def test_a_turn_that_was_not_rendered_is_skipped_with_the_reason():
    source = "{% if messages | length > 4 %}{{ raise_exception('too long') }}{% endif %}x"
    root = suites(checked(*conversation("any"), source=source))
    assert "too long" in root.find(".//skipped").get("message")


def test_any_text_of_a_log_makes_valid_xml():
    attack = "]]>&<\"'\x00\x1b\ud800\ufffe"
    log = checked(*conversation(attack, orders=lambda turn: attack + clock(turn)))
    root = ET.fromstring("".join(check_suite(log)).encode(errors="replace"))
    assert root.find(".//failure") is not None


def test_names_of_tools_make_valid_xml_too():
    """Details name tools as the client did."""
    one, two = conversation("tools", num_turns=2)
    names = ["a\x00\x1b", "b\x07"]
    log = checked(
        replace(one, tools=tuple(map(tool, names))),
        replace(two, tools=tuple(map(tool, reversed(names)))),
    )
    assert suites(log).find(".//failure").get("type") == "client.tools_reordered"


def test_a_conversation_of_one_turn_has_nothing_to_test():
    assert len(suites(checked(*conversation("one", num_turns=1)))) == 0
