"""What tiers did, in numbers that only grow."""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["TierStats"]


@dataclass(slots=True)
class TierStats:
    """Counts since the start. Keys of pairs are (from, to); of single names the tier."""

    moved_blocks: Counter[tuple[str, str]] = field(default_factory=Counter)
    moved_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    moved_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """Seconds of work, queues not counted."""
    problems: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (tier read from or written to, outcome): missing, wrong, failed."""
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Blocks not stored, by (tier, reason): `busy`, `full`, `closed`."""
    lookups: Counter[str] = field(default_factory=Counter)
    """Look-ups in the shared store, by outcome: `answered`, `late`, `failed`."""
    decisions: Counter[str] = field(default_factory=Counter)
    """Requests with blocks in lower tiers, by what was chosen: `load`, `split`, `recompute`."""
    predicted_s: float = 0.0
    """Of these requests, from admission to the first token."""
    actual_s: float = 0.0
    best_s: float = 0.0
    """The smaller of what was predicted for loading all and for computing all."""
    regret_s: float = 0.0
    """Seconds above that, summed over the requests that took longer."""
    num_given_up: int = 0
    """Blocks computed because their load came too late."""

    def moved(self, source: str, target: str, num_blocks: int, num_bytes: int, s: float) -> None:
        """Count one transfer."""
        pair = (source, target)
        self.moved_blocks[pair] += num_blocks
        self.moved_bytes[pair] += num_bytes
        self.moved_s[pair] = self.moved_s.get(pair, 0.0) + s
