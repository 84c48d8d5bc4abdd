"""Lines over one axis as a self-contained SVG: no script, no font, nothing loaded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Axis", "Line", "Marker", "line_chart"]

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 40, 48
_COLOURS = ("#0b62a4", "#c2410c", "#4d7c0f", "#7e22ce")


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of the chart."""

    label: str
    low: float
    high: float
    is_log: bool = False
    """Values of 0 and less lie on the border."""

    def share(self, value: float) -> float:
        """Return where a value lies between the ends, 0 to 1, clamped."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = (math.log(max(v, 1e-12)) for v in (value, low, high))
        if high <= low:
            return 0.0
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def ticks(self) -> list[float]:
        """Return round values between the ends: powers of ten, or five steps."""
        if self.is_log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        step = _round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step)
        return [step * k for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Line:
    """One curve."""

    name: str
    points: Sequence[tuple[float, float]]
    is_step: bool = False
    """Constant between points, as of counts."""


@dataclass(frozen=True, slots=True)
class Marker:
    """A vertical line at one value."""

    name: str
    at: float


def line_chart(
    title: str, x: Axis, y: Axis, lines: Sequence[Line], markers: Sequence[Marker] = ()
) -> str:
    """Return the chart as one SVG document."""
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">'
        ),
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        _text(_LEFT, 18, title, weight="bold"),
        *_axes(x, y),
        *(_curve(line, x, y, _COLOURS[i % 4]) for i, line in enumerate(lines)),
        *(_marker(marker, x, index) for index, marker in enumerate(markers)),
        *_legend(lines),
        "</svg>\n",
    ]
    return "".join(parts)


def _at_x(axis: Axis, value: float) -> float:
    return _LEFT + axis.share(value) * (_WIDTH - _LEFT - _RIGHT)


def _at_y(axis: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - axis.share(value) * (_HEIGHT - _TOP - _BOTTOM)


def _axes(x: Axis, y: Axis) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#444"/>',
        _text((_LEFT + right) / 2, _HEIGHT - 8, x.label, anchor="middle"),
        _text(_LEFT - 56, _TOP - 8, y.label),
    ]
    for value in x.ticks():
        at = _at_x(x, value)
        parts.append(f'<path d="M{at:.1f} {_TOP}V{bottom}" stroke="#ddd"/>')
        parts.append(_text(at, bottom + 16, _number(value), anchor="middle"))
    for value in y.ticks():
        at = _at_y(y, value)
        parts.append(f'<path d="M{_LEFT} {at:.1f}H{right}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 6, at + 4, _number(value), anchor="end"))
    return parts


def _curve(line: Line, x: Axis, y: Axis, colour: str) -> str:
    steps: list[str] = []
    for px, py in line.points:
        at_x, at_y = _at_x(x, px), _at_y(y, py)
        if not steps:
            steps.append(f"M{at_x:.1f} {at_y:.1f}")
        elif line.is_step:
            steps.append(f"H{at_x:.1f}V{at_y:.1f}")
        else:
            steps.append(f"L{at_x:.1f} {at_y:.1f}")
    return f'<path d="{"".join(steps)}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _marker(marker: Marker, x: Axis, index: int) -> str:
    at = _at_x(x, marker.at)
    line = f'<path d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#444" stroke-dasharray="4 3"/>'
    anchor = "end" if at > _WIDTH * 0.6 else "start"
    shift = -4 if anchor == "end" else 4
    return line + _text(at + shift, _TOP + 12 + 14 * index, marker.name, anchor=anchor)


def _legend(lines: Sequence[Line]) -> list[str]:
    parts = []
    for index, line in enumerate(lines):
        at = _LEFT + 150 * index
        colour = _COLOURS[index % 4]
        parts.append(f'<path d="M{at} 29h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(at + 22, 33, line.name))
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="#222">{escape(text)}</text>'
    )


def _number(value: float) -> str:
    if value and (abs(value) >= 1e6 or abs(value) < 0.01):
        return f"{value:.3g}"
    return f"{value:,.10g}"


def _round_step(step: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= step * 0.999)
