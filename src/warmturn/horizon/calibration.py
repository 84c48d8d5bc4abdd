"""How an engine rounds reuse: fitted to immediate replays, before anything is judged by it.

usual           floor((n - 1) / g) * g            g: the block, or a multiple the engine aligns to
drops a block   (floor((n - 1) / g) - 1) * g      engines that always compute the last block again
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from warmturn.cost import most_cached_tokens
from warmturn.errors import InvalidInput

__all__ = ["Calibration", "Replay", "Residence", "calibrate"]

Residence: TypeAlias = Literal["resident", "partial", "evicted", "inconclusive"]

_MOST_GRANULARITY = 65_536
_LEAST_SHARE = 2 / 3
"""Of the replays that a rule has to explain."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A prompt sent again at once."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """The rule of one engine."""

    granularity: int
    """Step of cached tokens."""
    drops_last_block: bool

    @property
    def min_probe_tokens(self) -> int:
        """The shortest prompt of which a full hit is above 0."""
        return (2 if self.drops_last_block else 1) * self.granularity + 1

    def most_cached(self, prompt_tokens: int) -> int:
        """Return what a full hit reports."""
        most = most_cached_tokens(prompt_tokens, self.granularity)
        return max(0, most - self.granularity) if self.drops_last_block else most

    def residency(self, probe: Replay) -> float | None:
        """Return the share of a full hit that was cached; None for prompts too short to tell."""
        most = self.most_cached(probe.prompt_tokens)
        return probe.cached_tokens / most if most else None

    def judge(self, probe: Replay) -> Residence:
        """Return whether the probe's content is still there."""
        share = self.residency(probe)
        if share is None:
            return "inconclusive"
        if share >= 1:
            return "resident"
        return "partial" if probe.cached_tokens > 0 else "evicted"


def calibrate(replays: Sequence[Replay]) -> Calibration:
    """Return the rule that explains most replays; of equal ones the usual one, then the coarser.

    Raises `InvalidInput` where no rule explains two thirds of them: then reuse is switched off, or
    something was evicted even between immediate replays.
    """
    lengths = np.array([replay.prompt_tokens for replay in replays], dtype=np.int64)
    cached = np.array([replay.cached_tokens for replay in replays], dtype=np.int64)
    if not len(replays) or not cached.any():
        raise InvalidInput(
            f"{len(replays)} immediate replays found nothing cached: prefix caching is off, or the "
            "prompts are shorter than its step; replay longer ones"
        )
    best: tuple[int, bool, int] | None = None
    for granularity in range(1, min(int(cached.max()), _MOST_GRANULARITY) + 1):
        for drops in (False, True):
            fits = _num_explained(lengths, cached, granularity, drops=drops)
            candidate = (fits, not drops, granularity)
            best = candidate if best is None else max(best, candidate)
    assert best is not None
    num_explained, is_usual, granularity = best
    if num_explained < _LEAST_SHARE * len(replays):
        raise InvalidInput(
            f"no rule of rounding explains more than {num_explained} of {len(replays)} immediate "
            "replays; calibrate without other load, and with more lengths"
        )
    return Calibration(granularity, not is_usual)


def _num_explained(
    lengths: npt.NDArray[np.int64], cached: npt.NDArray[np.int64], granularity: int, *, drops: bool
) -> int:
    blocks = np.maximum(lengths - 1, 0) // granularity - int(drops)
    return int((np.maximum(blocks, 0) * granularity == cached).sum())
