"""Whether a lower tier keeps tenants apart, judged by what it served and by its keys.

An engine may honour salts on the device while the store behind it names blocks by tokens alone:
another tenant's equal prompt is then served from the first one's blocks.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["IsolationProbe", "IsolationVerdict", "judge_isolation"]

# An empty value, in quotes or not: before a separator, the end, or the next `name=`.
_EMPTY_SALT = re.compile(
    r"""salt['"]?\s*[=:](?:\s*(?:''|""|None\b|null\b|(?=[,;)\]}]|$))|(?=\s+\w+\s*=))""",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class IsolationProbe:
    """One request sent under a salt, and how much of it came from a cache."""

    salt: str
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class IsolationVerdict:
    """What the probes and the store's keys prove."""

    evidence: tuple[str, ...]
    """`cached-tokens-for-new-salt`, `store-key-with-empty-salt`."""

    @property
    def holds(self) -> bool:
        """Nothing speaks against isolation; which proves it only as far as the probes went."""
        return not self.evidence

    @property
    def action(self) -> str:
        """`none`, or what to do about salted requests."""
        return "none" if self.holds else "warn-or-disable-external-tier"


def judge_isolation(probes: Iterable[IsolationProbe], store_log: Iterable[str]) -> IsolationVerdict:
    """Judge probes in the order they were sent, and lines that show the store's keys.

    A salt never used before can have nothing cached. Keys without a salt are proof only where
    salted requests were sent.
    """
    seen: set[str] = set()
    leaks = False
    for probe in probes:
        if probe.salt:
            leaks |= probe.salt not in seen and probe.cached_tokens > 0
            seen.add(probe.salt)
    is_unsalted = bool(seen) and any(_EMPTY_SALT.search(line) for line in store_log)
    found = (("cached-tokens-for-new-salt", leaks), ("store-key-with-empty-salt", is_unsalted))
    return IsolationVerdict(tuple(name for name, is_there in found if is_there))
