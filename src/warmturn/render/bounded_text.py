"""Rendering that stops where a text grows too long."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Template

from warmturn.errors import TemplateError
from warmturn.render.environment import MAX_RENDERED_CHARS

__all__ = ["bounded_text"]


def bounded_text(compiled: Template, variables: Mapping[str, Any]) -> str:
    """Return the text. Raises `TemplateError` where it grows too long, and what the template raises."""
    pieces = []
    num_chars = 0
    for piece in compiled.generate(variables):
        num_chars += len(piece)
        if num_chars > MAX_RENDERED_CHARS:
            raise TemplateError(
                f"the chat template gave over {MAX_RENDERED_CHARS} characters; "
                "shorten the messages or correct the template",
                param="messages",
            )
        pieces.append(piece)
    return "".join(pieces)
