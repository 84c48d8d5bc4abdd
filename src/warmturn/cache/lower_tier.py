"""One slow tier as the manager knows it: what it holds, how fast it is, whether it answers."""

from collections import OrderedDict
from collections.abc import Iterable

from warmturn.cache.breaker import CircuitBreaker
from warmturn.cache.learned_times import TransferTime
from warmturn.cache.tier_index import TierIndex
from warmturn.cache.transfers import TierName
from warmturn.types import BlockHash

__all__ = ["LowerTier", "SharedContent"]

_MAX_KNOWN = 1_000_000
"""Keys of the shared store remembered: about 100 MB."""


class SharedContent:
    """What this process knows of a store others write to and clean up: a belief that expires."""

    def __init__(self, *, lifetime_s: float) -> None:
        self._lifetime_s = lifetime_s
        self._known: OrderedDict[BlockHash, float] = OrderedDict()  # key -> until when

    def add(self, keys: Iterable[BlockHash], *, now: float) -> None:
        """Note that blocks are there."""
        for key in keys:
            self._known[key] = now + self._lifetime_s
            self._known.move_to_end(key)
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    def discard(self, key: BlockHash) -> None:
        """Note that a block is not there, or no use."""
        self._known.pop(key, None)

    def has(self, key: BlockHash, *, now: float) -> bool:
        """Tell whether the block is believed to be there."""
        return self._known.get(key, now) > now

    def __len__(self) -> int:
        """Count beliefs, expired ones not yet dropped included."""
        return len(self._known)

    def clear(self) -> None:
        """Believe nothing."""
        self._known.clear()


class LowerTier:
    """State of the disk (`index` set) or of the shared store (`known` set)."""

    def __init__(
        self,
        name: TierName,
        *,
        num_slots: int | None = None,
        block_bytes: int,
        lifetime_s: float = 60.0,
        max_queued_blocks: int,
    ) -> None:
        """`num_slots` for a tier of our own; without, a store whose content others change too.

        `lifetime_s`: how long it is believed that the store has a block. Shorter than any sensible
        time to live there, longer than a request waits.
        """
        self.name = name
        self.index = None if num_slots is None else TierIndex(num_slots)
        self.known = SharedContent(lifetime_s=lifetime_s)
        self.time = TransferTime.assumed_for(name, typical_bytes=16.0 * block_bytes)
        self.reads = CircuitBreaker()
        self.writes = CircuitBreaker()
        self.num_reading = 0
        """Blocks asked for and not there yet."""
        self.num_writing = 0
        self._max_queued_blocks = max_queued_blocks

    def has(self, key: BlockHash, *, now: float) -> bool:
        """Tell whether the block can be read."""
        if self.index is not None:
            return self.index.is_ready(key)
        return self.known.has(key, now=now)

    def lacks(self, key: BlockHash, *, now: float) -> bool:
        """Tell whether the block is neither there nor on its way there."""
        if self.index is not None:
            return key not in self.index
        return not self.known.has(key, now=now)

    def may_read(self, *, now: float) -> bool:
        """Tell whether reading is worth trying. The shared store is tried by look-ups first."""
        return self.reads.is_closed or (self.index is not None and self.reads.allows(now))

    def refusal(self, *, now: float) -> str | None:
        """Return why nothing is to be written now: `busy`, `closed`; None to go on."""
        if self.num_writing >= self._max_queued_blocks:
            return "busy"
        return None if self.writes.allows(now) else "closed"

    def forget(self, key: BlockHash) -> None:
        """Note that a block is not there any more."""
        if self.index is not None:
            self.index.remove(key)
        self.known.discard(key)

    def clear(self) -> None:
        """Forget all content that nothing uses."""
        if self.index is not None:
            self.index.clear()
        self.known.clear()
