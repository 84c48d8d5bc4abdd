"""Reuse per turn as an inline SVG: one small chart for each conversation."""

from collections.abc import Sequence
from html import escape

__all__ = ["reuse_plot"]

_HEIGHT, _STEP, _BAR, _TOP = 56, 12, 9, 4
_MOST_BARS = 60


def reuse_plot(shares: Sequence[float], *, name: str, fail_under: float) -> str:
    """Return a bar for each share (0 to 1) and a line at `fail_under`; of many the newest.

    A reader that shows no pictures reads all figures out of the title.
    """
    shown = shares[-_MOST_BARS:]
    first = len(shares) - len(shown) + 2  # turn 1 continues nothing
    width = _STEP * len(shown) + 2
    bars = "".join(
        _bar(index, share, first + index, is_low=share < fail_under)
        for index, share in enumerate(shown)
    )
    at = _TOP + _HEIGHT * (1 - fail_under)
    line = f'<line class="limit" x1="0" x2="{width}" y1="{at:.1f}" y2="{at:.1f}"/>'
    figures = ", ".join(f"turn {first + i}: {int(s * 100)} %" for i, s in enumerate(shown))
    title = escape(f"Reuse per turn of {name}. {figures}")
    total = _HEIGHT + _TOP + 2
    return (
        f'<svg role="img" viewBox="0 0 {width} {total}" width="{width}" height="{total}">'
        f"<title>{title}</title>{line}{bars}</svg>"
    )


def _bar(index: int, share: float, turn: int, *, is_low: bool) -> str:
    height = max(1.0, _HEIGHT * min(1.0, share))
    kind = "low" if is_low else "high"
    label = f"turn {turn}: {int(share * 100)} %"
    return (
        f'<rect class="{kind}" x="{index * _STEP + 1}" y="{_TOP + _HEIGHT - height:.1f}" '
        f'width="{_BAR}" height="{height:.1f}"><title>{label}</title></rect>'
    )
