"""Part 1, the append-only checker. Built so far: the renderer itself."""

from datetime import UTC, datetime
from typing import Any

from tests.cases.discovery import Case

NOW = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
"""For templates that print a date; no case of these kinds depends on the value."""


def render_parity(case: Case) -> dict[str, Any]:
    from warmturn.render import ChatTemplate

    template = ChatTemplate(case.read_text(case.input["template_file"]), special_tokens={})
    text = template.render(
        case.input["messages"],
        now=NOW,
        tools=case.input["tools"] or None,
        add_generation_prompt=case.input["add_generation_prompt"],
        **case.input["template_kwargs"],
    )
    return {"reference_text": text}


ANSWERS = {"render-parity": (render_parity, ("cause", "variants"))}
