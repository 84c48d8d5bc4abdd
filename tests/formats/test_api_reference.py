"""docs/reference/api.md lists every field the readers know."""

import re
from dataclasses import fields
from pathlib import Path

from warmturn.formats.generation import HARMLESS, REFUSED, Generation
from warmturn.formats.openai import _ChatFields, _CompletionFields
from warmturn.formats.prompt import ChatPrompt

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text()


def section(title: str) -> str:
    """Return the text under one heading."""
    return re.split(r"^#+ ", PAGE.partition(f"## {title}\n")[2], flags=re.MULTILINE)[0]


def test_every_accepted_field_has_a_row_and_every_row_a_field():
    kinds = (Generation, ChatPrompt, _ChatFields, _CompletionFields)
    accepted = {field.name for kind in kinds for field in fields(kind)}
    titles = ("Both endpoints", "Chat only", "Completion only")
    rows = {
        name
        for title in titles
        for name in re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE)
    }
    assert rows - {"tool_choice"} == accepted


def test_every_refused_field_is_listed():
    listed = section("Refused").partition("`text` …): ")[2]
    assert set(re.findall(r"`(\w+)`", listed)) == REFUSED.keys() - {"tool_choice"}


def test_every_harmless_field_is_listed():
    assert set(re.findall(r"`(\w+)`", section("Accepted without effect"))) == HARMLESS
