"""One load: blocks on their way up to one request, and how far it has come."""

from collections.abc import Sequence
from enum import IntEnum

from warmturn.cache.transfers import Chain, TierName

__all__ = ["BlockState", "Load"]


class BlockState(IntEnum):
    """Where one block of a load is."""

    WAITING = 0
    """Not on the host yet."""
    COPYING = 1
    """Being written to the device: nobody else may write there now."""
    LOADED = 2
    LEFT = 3
    """Will not be loaded: it failed, or the request computes it instead."""


class Load:
    """Blocks `[split, stop)` of a chain on their way to the device, or to the host only.

    Whoever asked for it computes blocks before `split` in the meantime, takes what is `LOADED`,
    and computes what is `LEFT`. It may `give_up` blocks that are still waiting.
    """

    def __init__(
        self,
        chain: Chain,
        sources: Sequence[TierName],
        *,
        split: int,
        device_blocks: Sequence[int] | None,
        started_s: float,
        predicted_s: float,
    ) -> None:
        """`sources[i]` is where block `split + i` lies; `device_blocks` covers `[0, stop)`."""
        self.chain = chain
        self.sources = tuple(sources)
        self.split = split
        self.stop = split + len(sources)
        self.device_blocks = device_blocks
        self.started_s = started_s
        self.predicted_s = predicted_s
        self.is_cancelled = False
        self.num_open = len(sources)
        """Blocks that are waiting or being copied."""
        self.num_copying = 0
        self.todo = list(range(self.stop - 1, split - 1, -1))
        """Blocks not asked for yet, the next one last."""
        self.num_reading = 0
        self._states = [BlockState.WAITING] * len(sources)

    def state(self, block: int) -> BlockState:
        """Return where block `block` of the chain is."""
        return self._states[block - self.split]

    def source(self, block: int) -> TierName:
        """Return where block `block` comes from."""
        return self.sources[block - self.split]

    def move(self, block: int, state: BlockState) -> None:
        """Note that a block got on."""
        before = self._states[block - self.split]
        self._states[block - self.split] = state
        self.num_copying += (state == BlockState.COPYING) - (before == BlockState.COPYING)
        self.num_open -= (state >= BlockState.LOADED) and (before < BlockState.LOADED)

    def give_up(self, start: int, stop: int) -> None:
        """Compute blocks `[start, stop)` instead; all of them must be waiting."""
        for block in range(start, stop):
            self.move(block, BlockState.LEFT)

    def is_wanted(self, block: int) -> bool:
        """Tell whether the block is still to be brought to the device."""
        return not self.is_cancelled and self.state(block) == BlockState.WAITING

    @property
    def is_over(self) -> bool:
        """True when nothing of it is on its way to the device any more."""
        return self.num_copying == 0 and (self.is_cancelled or self.num_open == 0)

    def num_loaded(self, tier: TierName) -> int:
        """Count blocks that came from `tier`."""
        return sum(
            state == BlockState.LOADED and source == tier
            for state, source in zip(self._states, self.sources, strict=True)
        )
