"""How far two sequences agree, and where they meet again.

Everything here compares with slices or arrays, so that the cost is that of `memcmp`.
"""

import re
from dataclasses import dataclass

import numpy as np

from warmturn.types import TokenIds

__all__ = ["Replacement", "first_replacement", "last_token_chars", "shared_chars", "shared_tokens"]

_SPECIAL_AT_END = re.compile(r"(?:<[^<>\s]{1,60}>|\[/?[A-Z_]{2,30}\])\Z")
_LONGEST_GAP = 64
_SURE_RUN = 4


def shared_chars(left: str, right: str) -> int:
    """Return the length of the common prefix. O(length), by halving."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    low, high = 0, limit  # left[:low] is shared, left[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def shared_tokens(left: TokenIds, right: TokenIds) -> int:
    """Return the length of the common prefix of two id sequences."""
    limit = min(len(left), len(right))
    differs = left[:limit] != right[:limit]
    first = int(differs.argmax()) if limit else 0
    return first if limit and differs[first] else limit


def last_token_chars(generated: str) -> int:
    """Return the length of the special token that ends `generated`; 0 where there is none.

    The last sampled token has no keys and values yet, so a break inside it costs nothing.
    """
    found = _SPECIAL_AT_END.search(generated)
    return 0 if found is None else len(found.group())


@dataclass(frozen=True, slots=True)
class Replacement:
    """`left[start:left_end]` became `right[start:right_end]`; behind it both go on alike."""

    start: int
    left_end: int
    right_end: int


def first_replacement(left: TokenIds, right: TokenIds) -> Replacement | None:
    """Return the smallest first change that makes both go on alike, None where they never do.

    "Alike" is four equal ids, or all that is left of `left`, and at least one.
    """
    start = shared_tokens(left, right)
    for size in range(1, 2 * _LONGEST_GAP):
        for taken in range(max(0, size - _LONGEST_GAP), min(size, _LONGEST_GAP) + 1):
            found = Replacement(start, start + taken, start + size - taken)
            if _goes_on_alike(left[found.left_end :], right[found.right_end :]):
                return found
    return None


def _goes_on_alike(left: TokenIds, right: TokenIds) -> bool:
    run = min(_SURE_RUN, len(left))
    return run > 0 and len(right) >= run and bool(np.array_equal(left[:run], right[:run]))
