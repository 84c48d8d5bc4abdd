"""A sweep of templates on a terminal and as JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from warmturn import __version__
from warmturn.check.shapes import SHAPES
from warmturn.check.sweep import ShapeCheck, TemplateSweep
from warmturn.report.sides import aligned_sides, visible

__all__ = ["print_sweep", "sweep_data"]

_MOST_IN_FULL = 3
_LEAST_SIDE_CHARS = 24
_PLACES = {
    "generated": "in the model's words",
    "generation-prompt": "in the generation prompt",
    "prompt": "in the earlier prompt",
}


def print_sweep(sweeps: Sequence[TemplateSweep], console: Console) -> None:
    """Print a few templates shape by shape; of many, counts for each shape."""
    if len(sweeps) <= _MOST_IN_FULL:
        for sweep in sweeps:
            _print_template(sweep, console)
        return
    console.print(_counts_table(sweeps))
    console.print()
    _say(console, _summary(sweeps), style="bold")


def sweep_data(sweeps: Sequence[TemplateSweep]) -> dict[str, Any]:
    """Return the sweep as JSON data."""
    return {
        "warmturn_version": __version__,
        "shapes": [{"name": shape.name, "about": shape.about} for shape in SHAPES],
        "num_templates": len(sweeps),
        "num_with_breaks": sum(sweep.num_breaks > 0 for sweep in sweeps),
        "templates": [{**asdict(sweep), "num_breaks": sweep.num_breaks} for sweep in sweeps],
    }


def helpful_changes(shape: ShapeCheck) -> list[str]:
    """Return the changes that cured the shape, each once."""
    return list(dict.fromkeys(fix.change for fix in shape.fixes if fix.is_proven))


def _print_template(sweep: TemplateSweep, console: Console) -> None:
    _say(console, sweep.name, style="bold")
    if sweep.error is not None:
        _say(console, f"  {visible(sweep.error)}", style="red")
        return
    abouts = {shape.name: shape.about for shape in SHAPES}
    for shape in sweep.shapes:
        _print_shape(shape, abouts[shape.shape], console)
    compared = sum(shape.verdict is not None for shape in sweep.shapes)
    _say(console, f"{sweep.num_breaks} of {compared} shapes break", style="bold")
    console.print()


def _print_shape(shape: ShapeCheck, about: str, console: Console) -> None:
    state = {"break": "BREAKS", "append-only": "ok"}.get(shape.verdict or "", "-")
    style = "red" if shape.verdict == "break" else ""
    _say(console, f"  {state:7}{shape.shape}: {about}", style=style)
    if shape.verdict is None:
        _say(console, f"         not compared: {visible(shape.detail)}", style="dim")
        return
    if shape.verdict == "break":
        place = _PLACES[shape.place or "prompt"]
        _say(console, f"         {shape.cause}, {place}: {shape.lost_chars:,} characters lost")
        _print_sides(shape, console)
        for change in helpful_changes(shape):
            _say(console, f"         helps: {visible(change)}", style="green")


def _print_sides(shape: ShapeCheck, console: Console) -> None:
    width = max(_LEAST_SIDE_CHARS, min(console.width, 120) - 18)
    sides = aligned_sides(shape.earlier_at, shape.later_at, width=width)
    for label, rest in (("cached", sides.earlier), ("sent now", sides.later)):
        line = Text.assemble((f"         {label:9}", "dim"), sides.shared, (rest, "reverse"))
        console.print(line, soft_wrap=True)


def _counts_table(sweeps: Sequence[TemplateSweep]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("shape", no_wrap=True)
    for name in ("ok", "break", "generated", "gen. prompt", "prompt", "helped", "not compared"):
        table.add_column(name, justify="right")
    for shape in SHAPES:
        found = [one for sweep in sweeps for one in sweep.shapes if one.shape == shape.name]
        table.add_row(shape.name, *map(str, _counts(found)))
    return table


def _counts(found: Sequence[ShapeCheck]) -> list[int]:
    verdicts = Counter(one.verdict for one in found)
    places = Counter(one.place for one in found)
    helped = sum(bool(helpful_changes(one)) for one in found)
    return [
        verdicts["append-only"],
        verdicts["break"],
        *(places[name] for name in _PLACES),  # type: ignore[index]
        helped,
        verdicts[None],
    ]


def _summary(sweeps: Sequence[TemplateSweep]) -> str:
    broken = sum(sweep.num_breaks > 0 for sweep in sweeps)
    refused = sum(not sweep.renders for sweep in sweeps)
    rest = f"; {refused:,} render no shape" if refused else ""
    return f"{len(sweeps):,} templates, {broken:,} break at least one shape{rest}"


def _say(console: Console, text: str, *, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
