"""Prefix churn: what the gateway remembers is bounded, and so is its memory."""

import gc

import numpy as np
import psutil
import pytest

from tests.support.soak import FACTOR
from tests.support.tiny_fleet import payload, source, stored
from warmturn.cache.events import BlockRemoved
from warmturn.fleet import PromptBlocks
from warmturn.gateway.prompt_beliefs import PromptBeliefs, ToldPrompt
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.served_models import ServedModels
from warmturn.router import Affinity, Dispatcher
from warmturn.session.bindings import Bindings
from warmturn.types import ReplicaId

NUM_BLOCKS = 250_000 * FACTOR
"""Five million when soaking."""
BLOCKS_PER_PROMPT = 500
CAPACITY_BLOCKS = 20_000
SIZE = 4


class Churn:
    """Prompts that never come again, over replicas that publish and replicas that do not."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.prompts = PromptBeliefs(ServedModels([]))
        self.dispatcher = Dispatcher(Affinity(), bindings=Bindings(max_sessions=2_000))
        for name in ("quiet", "loud"):
            endpoint = "tcp://h:1" if name == "loud" else None
            spec = ReplicaSpec(
                ReplicaId(name), block_size=SIZE, capacity_tokens=CAPACITY_BLOCKS * SIZE,
                events_endpoint=endpoint,
            )  # fmt: skip
            self.prompts.add_replica(spec)
            self.dispatcher.add_source(source(name), now=0.0)
        (self.beliefs,) = self.prompts.beliefs_of(ReplicaId("loud"))
        self.held: list[tuple[int, ...]] = []
        self.num_placed = self.number = 0

    def step(self, now: float) -> None:
        chain = self.rng.integers(1, 2**64 - 1, BLOCKS_PER_PROMPT, np.uint64)
        told = ToldPrompt(self.beliefs, PromptBlocks(SIZE * len(chain), {SIZE: chain}))
        hits = self.prompts.hits(told, now)
        self.num_placed += 1
        placement = self.dispatcher.place(
            f"session {self.num_placed}", prompt_tokens=SIZE * len(chain), belief=hits, now=now
        )
        self.prompts.sent(told, placement.source, None, now)
        self.dispatcher.first_byte(placement, now, is_streamed=True)
        self.prompts.prefilled(told, now)
        self.dispatcher.ended(placement, now, cached_tokens=0, num_tokens=SIZE * len(chain))
        if placement.source == source("loud"):
            self.publish(chain)

    def publish(self, chain) -> None:
        hashes = tuple(int(block) for block in chain)
        events = [stored(hashes, self.rng.integers(0, 1000, SIZE * len(chain)), size=SIZE)]
        self.held.append(hashes)
        if len(self.held) * BLOCKS_PER_PROMPT > CAPACITY_BLOCKS:
            events.insert(0, BlockRemoved(self.held.pop(0)))
        self.beliefs.consumer.receive(ReplicaId("loud"), self.number, payload(*events))
        self.number += 1


@pytest.mark.slow
def test_churn_leaves_memory_as_it_was_after_a_fifth():
    churn, process = Churn(), psutil.Process()
    num_prompts = NUM_BLOCKS // BLOCKS_PER_PROMPT
    after_a_fifth = 0
    for number in range(num_prompts):
        churn.step(float(number))
        if number == num_prompts // 5:
            gc.collect()
            after_a_fifth = process.memory_info().rss
    gc.collect()
    assert process.memory_info().rss <= 1.05 * after_a_fifth
    assert churn.beliefs.num_blocks(source("quiet")) <= CAPACITY_BLOCKS
    assert 0 < churn.beliefs.num_blocks(source("loud")) <= CAPACITY_BLOCKS
    assert churn.beliefs.consumer.announced(source("loud")).num_overflows == 0
    assert len(churn.dispatcher.bindings) <= 2_000
