"""What every benchmark does with its figures: a table for people, JSON for `--json`."""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console

console = Console(stderr=True)


def parser(description: str | None) -> argparse.ArgumentParser:
    """A command line that already has `--json FILE`."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", metavar="FILE", help="write the figures here; - for stdout")
    return made


def write(result: dict[str, Any], target: str | None) -> None:
    """Write `result` where `--json` says."""
    text = json.dumps(result, indent=1) + "\n"
    if target == "-":
        print(text, end="")
    elif target is not None:
        Path(target).write_text(text, encoding="utf-8")


def summary(values: list[float]) -> dict[str, float]:
    """Median with the 10th and the 90th percentile."""
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return {"median": statistics.median(values), "p10": tenths[0], "p90": tenths[-1]}


def shown(figures: dict[str, float], digits: int = 3) -> str:
    """`median (p10 - p90)` for a table."""
    return " ".join(
        (
            f"{figures['median']:,.{digits}f}",
            f"({figures['p10']:,.{digits}f} -",
            f"{figures['p90']:,.{digits}f})",
        )
    )


def verdict(*, met: bool) -> str:
    """How a target's line ends."""
    return "met" if met else "NOT met"
