"""Longer counts of the same tests: `make soak` sets WARMTURN_SOAK=20."""

import os

FACTOR = int(os.environ.get("WARMTURN_SOAK", "1"))


def examples(count: int) -> int:
    """How many random examples a property gets: `count` in CI, many more when soaking."""
    return count * FACTOR
