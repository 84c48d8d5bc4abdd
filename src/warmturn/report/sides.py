"""The two sides of a break as text: control characters visible, aligned where they part.

A log is foreign text. Printed raw, an escape sequence in it could repaint a terminal.
"""

import unicodedata
from dataclasses import dataclass

__all__ = ["Sides", "aligned_sides", "visible"]

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LEAST_BEFORE = 8


@dataclass(frozen=True, slots=True)
class Sides:
    """What both sides share, and how each goes on; one line each."""

    shared: str
    earlier: str
    later: str


def aligned_sides(earlier: str, later: str, *, width: int) -> Sides:
    """Return both sides cut to `width` characters, the break about in the middle of them."""
    at = _shared_chars(earlier, later)
    shared = visible(earlier[:at])
    before = max(_LEAST_BEFORE, width // 2)
    if len(shared) > before:
        shared = f"…{shared[len(shared) - before + 1 :]}"
    room = max(_LEAST_BEFORE, width - len(shared))
    return Sides(shared, *(_cut(visible(side[at:]), room) for side in (earlier, later)))


def visible(text: str) -> str:
    """Return `text` with everything that is not plainly printed written as an escape."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    # Cc, Cf (which holds the marks that reverse a line), Co, Cs, Zl and Zp.
    category = unicodedata.category(character)
    if category[0] == "C" or category in {"Zl", "Zp"}:
        return f"\\u{ord(character):04x}" if ord(character) > 0xFF else f"\\x{ord(character):02x}"
    return character


def _shared_chars(left: str, right: str) -> int:
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
