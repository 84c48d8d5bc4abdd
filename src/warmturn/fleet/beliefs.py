"""What the sources of one base model are believed to hold of a prompt, whatever tells it.

source announces blocks    its events; plus what was routed there a moment ago (`expected`)
it announces nothing       an imitated pool, fed with what was routed (`approximate`)
the prompt has no tokens   likewise, of hashed chunks of its bytes
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from warmturn.fleet.approximate import ApproximateSource
from warmturn.fleet.chain import IndexHashes, IndexScope, index_chain
from warmturn.fleet.consumer import AnnouncedMatches, FleetConsumer
from warmturn.fleet.expected import Expectation, ExpectedBlocks
from warmturn.fleet.index import FleetIndex, Matches, PrefixMatch
from warmturn.fleet.sequence import SourceState
from warmturn.fleet.sources import SourceId
from warmturn.fleet.trust import STATE_CREDIT
from warmturn.types import ReplicaId

__all__ = ["Beliefs", "BlockMatch", "PromptBlocks", "PromptMatches", "chunk_chain"]

CHUNK_BYTES = 64
"""Of a prompt without tokens: about as much text as a block of 16 tokens."""
DEFAULT_BLOCK_SIZE = 16
"""Of a source that does not say: what vLLM and most others have on a GPU."""
DEFAULT_CAPACITY_TOKENS = 500_000
"""Of a source that does not say: an 8B model's on one large GPU."""


@dataclass(frozen=True, slots=True)
class PromptBlocks:
    """One prompt cut into blocks and hashed."""

    num_tokens: int
    chains: Mapping[int, IndexHashes]
    """By block size in tokens; of chunked prompts one chain, under `CHUNK_BYTES`."""
    chunk_tokens: float | None = None
    """Of a prompt in chunks of bytes: tokens per chunk, an estimate. None: it is in tokens."""

    @property
    def is_chunked(self) -> bool:
        """Whether it is cut by bytes."""
        return self.chunk_tokens is not None

    def chain(self, block_size: int) -> IndexHashes:
        """Return the chain for `block_size`; empty where it was not hashed for that."""
        return self.chains.get(block_size, _NO_HASHES)


_NO_HASHES = np.empty(0, np.uint64)


def chunk_chain(text: bytes | memoryview, scope: IndexScope) -> IndexHashes:
    """Return the chain of a text's full chunks of `CHUNK_BYTES`."""
    num = len(text) // CHUNK_BYTES
    words = np.frombuffer(text, np.dtype("<i4"), count=num * (CHUNK_BYTES // 4))
    return index_chain(words, scope, block_size=CHUNK_BYTES // 4)


@dataclass(frozen=True, slots=True)
class BlockMatch:
    """What one source holds of a prompt, and how far to trust what told it."""

    match: PrefixMatch
    block_tokens: float
    """Tokens per block; of chunks an estimate."""
    credit: float


class Beliefs:
    """Belief about every source of one base model."""

    def __init__(self) -> None:
        self.index = FleetIndex()
        self.consumer = FleetConsumer(self.index)
        self._chunks = FleetIndex()
        self._routed: dict[SourceId, ApproximateSource] = {}
        self._chunked: dict[SourceId, ApproximateSource] = {}
        self._expected: dict[SourceId, ExpectedBlocks] = {}
        self._sizes: dict[SourceId, tuple[int, int]] = {}

    @property
    def block_sizes(self) -> frozenset[int]:
        """Sizes that prompts have to be hashed for."""
        return frozenset(map(self.block_size, self._sizes)) or frozenset({DEFAULT_BLOCK_SIZE})

    def block_size(self, source: SourceId) -> int:
        """Return the size of a source's blocks: as announced, as told, or as assumed."""
        announced = self.consumer.announced(source)
        if announced is not None and announced.block_size is not None:
            return announced.block_size
        return self._sizes[source][0]

    def announces(self, source: SourceId) -> bool:
        """Say whether a source's events are followed."""
        return source in self._expected

    def state(self, source: SourceId) -> SourceState | None:
        """Return how much of a source's events is known; None where it announces nothing."""
        return self.consumer.state(source) if source in self._expected else None

    def num_blocks(self, source: SourceId) -> int:
        """Return how many blocks a source is believed to hold."""
        return self.index.num_blocks_of(source) if source in self.index.sources else 0

    def add_source(
        self,
        source: SourceId,
        *,
        announces: bool,
        block_size: int | None = None,
        capacity_tokens: int | None = None,
    ) -> None:
        """Take a source in, or hear of its size; what is held of it is kept where that is equal."""
        size = block_size or DEFAULT_BLOCK_SIZE
        capacity = max(size, capacity_tokens or DEFAULT_CAPACITY_TOKENS)
        if self._sizes.get(source) == (size, capacity):
            return
        self._sizes[source] = size, capacity
        if announces:
            self._expected.setdefault(source, ExpectedBlocks())
        else:
            self._routed[source] = self._imitated(source, self.index, capacity // size, size)
        num_chunks = max(1, capacity // DEFAULT_BLOCK_SIZE)
        self._chunked[source] = self._imitated(source, self._chunks, num_chunks, CHUNK_BYTES)

    def remove_replica(self, replica: ReplicaId) -> None:
        """Forget a replica with all its ranks."""
        self.consumer.remove_replica(replica)
        for source in [s for s in self._sizes if s.replica == replica]:
            self.index.remove_source(source)
            self._chunks.remove_source(source)
            for table in (self._routed, self._chunked, self._expected, self._sizes):
                table.pop(source, None)

    def forget(self, source: SourceId) -> None:
        """The source began anew; its events, where it has any, are the consumer's business."""
        for imitated in (self._routed.get(source), self._chunked.get(source)):
            if imitated is not None:
                imitated.forget()
        if source in self._expected:
            self._expected[source].clear()

    def matches(self, prompt: PromptBlocks, *, now: float) -> "PromptMatches":
        """Return what each source holds of `prompt`, as of now."""
        for expected in self._expected.values():
            expected.expire(now)
        if prompt.is_chunked:
            return PromptMatches(self, prompt, {}, self._chunks.match(prompt.chain(CHUNK_BYTES)))
        by_size = {size: self.consumer.match(chain) for size, chain in prompt.chains.items()}
        return PromptMatches(self, prompt, by_size, None)

    def routed(self, source: SourceId, prompt: PromptBlocks, *, now: float) -> Expectation | None:
        """Count a prompt as held, or on its way, where it was sent.

        Returns what is to be given back with `arrived`, for a source that announces its blocks.
        """
        if source not in self._sizes:
            return None
        if prompt.is_chunked:
            self._chunked[source].routed(prompt.chain(CHUNK_BYTES), now=now)
            return None
        chain = prompt.chain(self.block_size(source))
        if source in self._routed:
            self._routed[source].routed(chain, now=now)
            return None
        held = self.consumer.match(chain).of(source).anywhere
        return self._expected[source].expect(chain[held:]) if held < len(chain) else None

    def arrived(self, source: SourceId, expectation: Expectation, *, now: float) -> None:
        """The prompt's prefill is done there, or was given up."""
        if source in self._expected:
            self._expected[source].arrived(expectation, now=now)

    def answered(
        self, source: SourceId, prompt: PromptBlocks, *, predicted: int, delivered: int
    ) -> None:
        """Learn from one answer's cached tokens how large an imitated pool really is."""
        table = self._chunked if prompt.is_chunked else self._routed
        imitated = table.get(source)
        if imitated is not None and predicted > 0:
            imitated.answered(predicted_tokens=predicted, delivered_tokens=delivered)

    def check(self) -> None:
        """Raise `BrokenInvariant` naming the first invariant that does not hold."""
        self.index.check()
        self._chunks.check()
        for expected in self._expected.values():
            expected.check()

    def expected_run(self, source: SourceId, chain: IndexHashes, start: int) -> int:
        """Return how many blocks of `chain` from `start` on are on their way to `source`."""
        expected = self._expected.get(source)
        return expected.run(chain[start:].tolist()) if expected else 0

    @staticmethod
    def _imitated(
        source: SourceId, index: FleetIndex, num_blocks: int, block_size: int
    ) -> ApproximateSource:
        index.remove_source(source)
        return ApproximateSource(
            source, index, num_blocks=max(1, num_blocks), block_size=block_size
        )


class PromptMatches:
    """What each source holds of one prompt; to be read before the next event is applied."""

    def __init__(
        self,
        beliefs: Beliefs,
        prompt: PromptBlocks,
        announced: Mapping[int, AnnouncedMatches],
        chunked: Matches | None,
    ) -> None:
        self._beliefs, self._prompt = beliefs, prompt
        self._announced, self._chunked = announced, chunked

    def of(self, source: SourceId) -> BlockMatch | None:
        """Return what `source` holds; None where nothing is known of it."""
        beliefs, prompt = self._beliefs, self._prompt
        if self._chunked is not None:
            return BlockMatch(self._chunked.of(source), prompt.chunk_tokens or 1.0, 1.0)
        if source not in beliefs._sizes:  # noqa: SLF001 - one mechanism in two classes
            return None
        size = beliefs.block_size(source)
        matches = self._announced.get(size)
        if matches is None:
            return None
        match = matches.of(source)
        if not beliefs.announces(source):
            return BlockMatch(match, size, 1.0)
        credit = STATE_CREDIT[beliefs.consumer.state(source)]
        if credit == 0.0:
            return None
        start = match.anywhere
        more = beliefs.expected_run(source, prompt.chain(size), start)
        return BlockMatch(_longer(match, start + more) if more else match, size, credit)


def _longer(match: PrefixMatch, blocks: int) -> PrefixMatch:
    """What is on its way will be on the device, behind what is there already."""
    is_whole = match.device == match.anywhere
    device = blocks if is_whole else match.device
    near = blocks if match.near == match.anywhere else match.near
    return PrefixMatch(device, match.host, match.storage, near, blocks)
