"""A fleet in memory: events of pools, sessions that talk, and a gateway's account of them."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from warmturn.cache.events import BlockStored, encode_batch
from warmturn.fleet import (
    ApproximateSource,
    FleetIndex,
    IndexScope,
    LoadView,
    SmoothedLoad,
    SourceId,
    index_chain,
)
from warmturn.router import Candidate, Policy, RoutingRequest, hit_of
from warmturn.session.bindings import Bindings
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


@dataclass
class Gateway:
    """One gateway without events: it knows where it sent what, and nothing else."""

    policy: Policy
    names: list[str]
    capacity_blocks: int = 4096
    index: FleetIndex = field(default_factory=FleetIndex)
    bindings: Bindings = field(default_factory=Bindings)
    requests: Counter = field(default_factory=Counter)
    turns: defaultdict = field(default_factory=lambda: defaultdict(list))
    prefilled_tokens: int = 0

    def __post_init__(self) -> None:
        self.held = {}
        self.loads = {name: SmoothedLoad(now=0.0) for name in self.names}
        self.running = Counter()
        for name in self.names:
            self.held[name] = ApproximateSource(
                source(name), self.index, num_blocks=self.capacity_blocks, block_size=BLOCK_SIZE
            )

    def candidates(self, prompt, *, now: float) -> list[Candidate]:
        matches = self.index.match(prompt)
        num_tokens = len(prompt) * BLOCK_SIZE
        return [
            Candidate(
                source(name),
                capacity_tokens=self.capacity_blocks * BLOCK_SIZE,
                load=LoadView(
                    num_running=self.running[name],
                    smoothed_requests=self.loads[name].mean(now=now),
                    session_tokens=self.bindings.session_tokens(ReplicaId(name), 0),
                ),
                hit=hit_of(
                    matches.of(source(name)), block_size=BLOCK_SIZE, prompt_tokens=num_tokens
                ),
            )
            for name in self.names
        ]

    def send(
        self, session: str, tokens, *, now: float, turn: int = 0, turns_left: float = 4.0
    ) -> str:
        prompt = chain(tokens, size=BLOCK_SIZE)
        binding = self.bindings.get(session, now=now)
        request = RoutingRequest(
            session=session,
            prompt_tokens=len(tokens),
            number=self.requests.total(),
            last_source=None if binding is None else source(binding.replica),
            turns_left=turns_left,
            is_first_turn=turn == 0,
        )
        decision = self.policy.choose(request, self.candidates(prompt, now=now), now)
        name = decision.source.replica
        self.held[name].routed(prompt, now=now)
        self.bindings.bind(session, name, 0, num_tokens=len(tokens), now=now)
        self.requests[name] += 1
        self.turns[session].append(name)
        self.prefilled_tokens += len(tokens) - decision.predicted_tokens
        return name

    def begin(self, name: str, *, now: float) -> None:
        self.running[name] += 1
        self.loads[name].set_level(self.running[name], now=now)

    def end(self, name: str, *, now: float) -> None:
        self.running[name] -= 1
        self.loads[name].set_level(self.running[name], now=now)

    def kept_share(self) -> float:
        pairs = [p for turns in self.turns.values() for p in pairwise(turns)]
        return sum(one == two for one, two in pairs) / len(pairs)

    def imbalance(self) -> tuple[float, float]:
        """Busiest over mean, in requests and in session tokens."""
        tokens = [self.bindings.session_tokens(ReplicaId(name), 0) for name in self.names]
        counts = [self.requests[name] for name in self.names]
        return tuple(max(each) / (sum(each) / len(each)) for each in (counts, tokens))


def conversation(number: int, turn: int, *, shared_tokens: int = 480, turn_tokens: int = 160):
    """Ids of a session's prompt: a system prompt all share, then its own turns."""
    shared = np.arange(shared_tokens, dtype=np.int32)
    own = np.random.default_rng(number).integers(1000, 50_000, turn_tokens * 12, dtype=np.int32)
    return np.concatenate((shared, own[: turn_tokens * (turn + 1)]))
