"""Reload or recompute: which blocks of a prompt are loaded, which are computed again.

    blocks    0 ....... device_hits ....... split ......... stop ....... end of the prompt
              in the pool | computed        | loaded        | computed
                          |<-- at the same time -->|        | after both

Computing the front while the back loads needs nothing from each other, so both go on at once and
meet at `split`. [computing from the front, loading from the back: Cake, ICML 2025]
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Candidate", "ReloadChoice", "RunCost", "break_even_bytes_per_s", "choose", "compare"]

_GRID = 33
"""Places for split and stop that are tried: a finer grid gained under 1 percent."""
_WORTH = 0.05
"""A split must gain this share: two things at once on one machine slow each other down."""


@dataclass(frozen=True, slots=True)
class RunCost:
    """What loading from one tier costs: seconds before the first byte, seconds per block."""

    wait_s: float
    """Queue and latency."""
    s_per_block: float


@dataclass(frozen=True, slots=True)
class ReloadChoice:
    """Load blocks `[split, stop)`; compute all others. Predicted seconds until all is there."""

    split: int
    stop: int
    predicted_s: float
    load_s: float
    """Of the load alone."""
    recompute_s: float
    """Of computing everything instead."""
    load_all_s: float
    """Of loading everything there is, then computing the rest."""

    @property
    def loads(self) -> bool:
        """True where anything is loaded."""
        return self.stop > self.split


def choose(
    tiers: npt.NDArray[np.int8],
    costs: Mapping[int, RunCost],
    *,
    first: int,
    num_tokens: int,
    block_size: int,
    prefill: tuple[float, float, float],
) -> ReloadChoice:
    """Choose the fastest way to have all `num_tokens` tokens of a prompt.

    `tiers` `[n]` says where block `first + i` lies, a key of `costs`; blocks before `first` are in
    the pool. `prefill` is (step_s, s_per_token, s_per_pair).
    """
    num_blocks = len(tiers)
    places = np.unique(np.linspace(0, num_blocks, min(_GRID, num_blocks + 1)).astype(int))
    edges = np.flatnonzero(np.diff(tiers)) + 1
    places = np.unique(np.concatenate([places, edges]))
    tokens = (first + places) * block_size
    front_s = _compute_s(first * block_size, tokens, prefill)  # [split]
    rest_s = _compute_s(tokens, num_tokens, prefill)  # [stop]
    load_s = _load_s(tiers, costs, places)  # [split, stop]
    total_s = np.maximum(front_s[:, None], load_s) + rest_s[None, :]
    total_s[load_s < 0] = np.inf
    recompute_s = float(_compute_s(first * block_size, np.array([num_tokens]), prefill)[0])
    split, stop = np.unravel_index(int(np.argmin(total_s)), total_s.shape)
    whole_stop = int(np.argmin(total_s[0]))
    if total_s[0, whole_stop] <= (1 + _WORTH) * total_s[split, stop]:
        split, stop = np.intp(0), np.intp(whole_stop)
    if split == stop or recompute_s <= total_s[split, stop]:
        return ReloadChoice(first, first, recompute_s, 0.0, recompute_s, float(total_s[0, -1]))
    return ReloadChoice(
        split=first + int(places[split]),
        stop=first + int(places[stop]),
        predicted_s=float(total_s[split, stop]),
        load_s=float(load_s[split, stop]),
        recompute_s=recompute_s,
        load_all_s=float(total_s[0, -1]),
    )


def _compute_s(
    start: int | npt.NDArray[np.int64],
    stop: int | npt.NDArray[np.int64],
    prefill: tuple[float, float, float],
) -> npt.NDArray[np.float64]:
    step_s, s_per_token, s_per_pair = prefill
    start, stop = np.asarray(start, np.float64), np.asarray(stop, np.float64)
    some = stop > start
    seconds = step_s + s_per_token * (stop - start) + s_per_pair * (stop**2 - start**2) / 2
    return np.where(some, seconds, 0.0)


def _load_s(
    tiers: npt.NDArray[np.int8], costs: Mapping[int, RunCost], places: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Seconds to load between two places `[split, stop]`; tiers load at once. -1: stop before split."""
    total = np.zeros((len(places), len(places)))
    for tier, cost in costs.items():
        before = np.concatenate([[0], np.cumsum(tiers == tier)])[places]
        num_blocks = before[None, :] - before[:, None]
        seconds = np.where(num_blocks > 0, cost.wait_s + cost.s_per_block * num_blocks, 0.0)
        total = np.maximum(total, seconds)
    return np.where(places[None, :] >= places[:, None], total, -1.0)


# --- one run by hand: what a plan, a report or a command asks ------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run of tokens that one tier offers. Bytes and seconds."""

    num_tokens: int
    bytes_per_s: float
    queue_s: float = 0.0
    fixed_s: float = 0.0


def compare(
    candidate: Candidate, *, kv_bytes_per_token: int, prefill_tokens_per_s: float
) -> tuple[float, float]:
    """Return (seconds to load the run, seconds to compute it)."""
    num_bytes = candidate.num_tokens * kv_bytes_per_token
    load_s = candidate.queue_s + candidate.fixed_s + num_bytes / candidate.bytes_per_s
    return load_s, candidate.num_tokens / prefill_tokens_per_s


def break_even_bytes_per_s(*, kv_bytes_per_token: int, prefill_tokens_per_s: float) -> float:
    """Return the bandwidth below which loading, queue and latency apart, is slower than computing."""
    return kv_bytes_per_token * prefill_tokens_per_s
