"""A checked log as JSON data: the report's own fields, and what was read."""

from dataclasses import asdict
from typing import Any

from warmturn import __version__
from warmturn.report.checked_log import CheckedLog

__all__ = ["check_data"]


def check_data(log: CheckedLog) -> dict[str, Any]:
    """Return the report as JSON data; docs/reference/check.md names the keys."""
    lost = sum(log.lost_tokens(turn) for turn in log.report.turns())
    return {
        "warmturn_version": __version__,
        "files": list(log.files),
        "rendered_with": log.rendered_with,
        "engine": log.engine,
        "block_tokens": log.block_tokens,
        "fail_under": log.fail_under,
        "num_new_failures": len(log.failures),
        "num_not_rendered": log.num_not_rendered,
        "num_bad_lines": log.num_bad_lines,
        "bad_lines": [asdict(line) for line in log.bad_lines],
        "lost_tokens": lost if log.has_tokens else None,
        **log.report.as_dict(),
        "lost_ttft_s": log.lost_s(lost) if log.has_tokens else None,
    }
