"""A checked log as JSON: the report's own fields, and what was read."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from warmturn import __version__
from warmturn.report.checked_log import CheckedLog

__all__ = ["check_data", "check_json"]


def check_json(log: CheckedLog) -> Iterator[str]:
    """Yield the report as JSON text, one conversation at a time; the keys are `check_data`'s."""
    head = json.dumps(_totals(log), indent=1).removesuffix("\n}")
    yield f'{head},\n "conversations": ['
    comma = ""
    for conversation in log.report.conversations:
        yield f"{comma}\n  {json.dumps(conversation.as_dict())}"
        comma = ","
    yield "\n ]\n}\n"


def check_data(log: CheckedLog) -> dict[str, Any]:
    """Return the report as JSON data; docs/reference/check.md names the keys."""
    conversations = [conversation.as_dict() for conversation in log.report.conversations]
    return {**_totals(log), "conversations": conversations}


def _totals(log: CheckedLog) -> dict[str, Any]:
    figures = log.figures
    totals = {
        "warmturn_version": __version__,
        "files": list(log.files),
        "rendered_with": log.rendered_with,
        "engine": log.engine,
        "block_tokens": log.block_tokens,
        "fail_under": log.fail_under,
        "num_new_failures": figures.num_new_failures,
        "num_not_rendered": figures.num_not_rendered,
        "num_bad_lines": log.num_bad_lines,
        "bad_lines": [asdict(line) for line in log.bad_lines],
        "lost_tokens": figures.lost_tokens if figures.has_tokens else None,
        **log.report.totals(),
        "lost_ttft_s": log.lost_s(figures.lost_tokens) if figures.has_tokens else None,
    }
    del totals["conversations"]
    return totals
