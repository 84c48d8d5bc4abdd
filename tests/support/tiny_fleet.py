"""A fleet in memory: events of pools, sessions that talk, and a gateway's account of them."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np

from warmturn.cache.events import BlockStored, encode_batch
from warmturn.fleet import Beliefs, IndexScope, PromptBlocks, SourceId, index_chain
from warmturn.router import Dispatcher, Placement, Policy, PromptHits
from warmturn.types import ReplicaId

BLOCK_SIZE = 16


def source(name: str, rank: int = 0) -> SourceId:
    return SourceId(ReplicaId(name), rank)


def stored(hashes, tokens, *, parent=None, size=4, **fields) -> BlockStored:
    return BlockStored(tuple(hashes), parent, np.array(tokens, np.int32), size, **fields)


def payload(*events, rank: int = 0) -> bytes:
    return encode_batch(events, timestamp_s=1.0, dp_rank=rank)


def chain(tokens, *, size=4, **scope):
    return index_chain(np.array(tokens, np.int32), IndexScope(**scope), block_size=size)


class Gateway:
    """One gateway over replicas without events: the dispatcher, and beliefs by what was routed."""

    def __init__(self, policy: Policy, names: list[str], *, capacity_blocks: int = 4096, **options):
        self.names = names
        self.dispatcher = Dispatcher(policy, **options)
        self.beliefs = Beliefs()
        self.requests: Counter[str] = Counter()
        self.turns: defaultdict[str, list[str]] = defaultdict(list)
        self.prefilled_tokens = 0
        for name in names:
            self.add(name, capacity_blocks=capacity_blocks)

    def add(self, name: str, *, capacity_blocks: int = 4096, now: float = 0.0) -> None:
        tokens = capacity_blocks * BLOCK_SIZE
        self.dispatcher.add_source(source(name), capacity_tokens=tokens, now=now)
        self.beliefs.add_source(
            source(name), announces=False, block_size=BLOCK_SIZE, capacity_tokens=tokens
        )

    def place(self, session: str, tokens, *, now: float, turn: int = 0) -> Placement:
        """Send one turn; it runs until `end`."""
        blocks = PromptBlocks(len(tokens), {BLOCK_SIZE: chain(tokens, size=BLOCK_SIZE)})
        placement = self.dispatcher.place(
            session,
            prompt_tokens=len(tokens),
            number=self.requests.total(),
            is_first_turn=turn == 0,
            belief=PromptHits(self.beliefs.matches(blocks, now=now), len(tokens)),
            now=now,
        )
        self.dispatcher.sent(placement, now)
        self.beliefs.routed(placement.source, blocks, now=now)
        name = str(placement.source.replica)
        self.requests[name] += 1
        self.turns[session].append(name)
        self.prefilled_tokens += len(tokens) - placement.predicted_tokens
        return placement

    def end(self, placement: Placement, *, now: float) -> None:
        """The answer is over, and as many tokens were cached as expected."""
        self.dispatcher.ended(placement, now, cached_tokens=placement.believed_tokens)

    def send(self, session: str, tokens, *, now: float, turn: int = 0, took_s: float = 0.1) -> str:
        """Send one turn and let it end; returns where it went."""
        placement = self.place(session, tokens, now=now, turn=turn)
        self.end(placement, now=now + took_s)
        return self.turns[session][-1]

    def kept_share(self) -> float:
        pairs = [p for turns in self.turns.values() for p in pairwise(turns)]
        return sum(one == two for one, two in pairs) / len(pairs)

    def imbalance(self) -> tuple[float, float]:
        """Busiest over mean, in requests and in session tokens."""
        held = self.dispatcher.bindings.session_tokens
        tokens = [held(ReplicaId(name), 0) for name in self.names]
        counts = [self.requests[name] for name in self.names]
        return tuple(max(each) / (sum(each) / len(each)) for each in (counts, tokens))

    def check(self) -> None:
        self.dispatcher.check()
        self.beliefs.check()


def conversation(number: int, turn: int, *, shared_tokens: int = 480, turn_tokens: int = 160):
    """Ids of a session's prompt: a system prompt all share, then its own turns."""
    shared = np.arange(shared_tokens, dtype=np.int32)
    own = np.random.default_rng(number).integers(1000, 50_000, turn_tokens * 12, dtype=np.int32)
    return np.concatenate((shared, own[: turn_tokens * (turn + 1)]))
