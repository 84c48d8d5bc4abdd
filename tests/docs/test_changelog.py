import re
from pathlib import Path

CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_it_opens_with_what_is_not_released():
    assert re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)[0] == "[Unreleased]"


def test_its_sections_are_those_of_keep_a_changelog():
    assert set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE)) <= KINDS
