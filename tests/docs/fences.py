"""The fenced blocks of a Markdown page, with the marks that say how a test treats them.

A mark is an HTML comment on the line before the fence:

    <!-- not run: REASON -->    the block is not run; the reason is required
    <!-- slow: REASON -->       the block is run with the slow tests
"""

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>not run|slow)(?P<colon>:?)(?P<reason>.*?)-->\n+)?"
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Fence:
    """One fenced block."""

    page: Path
    line: int
    """Of the opening fence, from 1."""
    language: str
    body: str
    not_run: str | None = None
    """Why the block is not run; None when it is."""
    is_slow: bool = False


def fences_of(page: Path) -> list[Fence]:
    """Return the page's blocks in order. A mark without a reason is a `ValueError`."""
    text = page.read_text(encoding="utf-8")
    return [_fence(page, text, match) for match in _FENCE.finditer(text)]


def _fence(page: Path, text: str, match: re.Match[str]) -> Fence:
    line = text.count("\n", 0, match.start("indent")) + 1
    mark, reason = match["mark"], (match["reason"] or "").strip()
    if mark and not (match["colon"] and reason):
        raise ValueError(f"{page.name}:{line}: '{mark}' needs a reason: <!-- {mark}: why -->")
    indent = len(match["indent"])
    body = "".join(row[indent:] if row.strip() else row for row in match["body"].splitlines(True))
    return Fence(
        page, line, match["language"], body, reason if mark == "not run" else None, mark == "slow"
    )
