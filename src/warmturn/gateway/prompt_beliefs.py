"""Where each prompt is believed to be held: prompts in blocks on one side, sources on the other.

One belief per base model, since blocks of two models never meet. A prompt is told in tokens where a
tokenizer is at hand and quick enough, else as chunks of bytes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import numpy as np

from warmturn.cache.events import AllBlocksCleared, BlockRemoved, BlockStored, encode_batch
from warmturn.fleet import (
    Beliefs,
    Expectation,
    FleetConsumer,
    IndexScope,
    PromptBlocks,
    ReplayRequest,
    SourceId,
    chunk_chain,
    index_chain,
)
from warmturn.fleet.beliefs import CHUNK_BYTES
from warmturn.gateway.prompt_state import PromptState
from warmturn.gateway.prompt_tokens import Asked, Cold, PromptTokens, Told, Work
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.served_models import ServedModels
from warmturn.gateway.turns import Call
from warmturn.router import PromptHits
from warmturn.types import ReplicaId

__all__ = ["PromptBeliefs", "ToldPrompt", "warm_up"]

COLD_WAIT_S = 0.005
"""How long a request waits for the thread: some 3,000 tokens; longer ones are told by bytes."""


@dataclass(slots=True)
class ToldPrompt:
    """One request's prompt, and what is outstanding about it."""

    beliefs: Beliefs
    blocks: PromptBlocks
    asked: Asked | None = None
    """Where a tokenizer understands the prompt, even if it was too slow for this request."""
    proof: Work | None = None
    source: SourceId | None = None
    expectation: Expectation | None = None


class PromptBeliefs:
    """Beliefs about all replicas by base model."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models
        self._beliefs: dict[str | None, Beliefs] = {}
        self._of_replica: dict[ReplicaId, tuple[Beliefs, ...]] = {}
        self._asking: dict[ReplicaId, Callable[[ReplayRequest], None]] = {}
        self.num_chunked = 0
        """Prompts told as chunks of bytes."""

    def add_replica(self, spec: ReplicaSpec) -> None:
        """Take a replica in."""
        bases: Iterable[str | None] = {self._models.base_of(m) for m in spec.models} or {None}
        beliefs = tuple(self._beliefs.setdefault(base, Beliefs()) for base in bases)
        self._of_replica[spec.replica] = beliefs
        self.observe_size(spec, spec.block_size, spec.capacity_tokens)

    def remove_replica(self, replica: ReplicaId) -> None:
        """Forget a replica."""
        for beliefs in self._of_replica.pop(replica, ()):
            beliefs.remove_replica(replica)
        self._asking.pop(replica, None)

    def observe_size(
        self, spec: ReplicaSpec, block_size: int | None, capacity_tokens: int | None
    ) -> None:
        """Hear how large a replica's blocks and pool are."""
        for beliefs in self._of_replica.get(spec.replica, ()):
            for rank in range(spec.num_ranks):
                beliefs.add_source(
                    SourceId(spec.replica, rank),
                    announces=spec.events_endpoint is not None,
                    block_size=spec.block_size or block_size,
                    capacity_tokens=spec.capacity_tokens or capacity_tokens,
                )

    def consumers(self, replica: ReplicaId) -> list[FleetConsumer]:
        """Return what a replica's events are to be given to."""
        return [beliefs.consumer for beliefs in self._of_replica.get(replica, ())]

    def beliefs_of(self, replica: ReplicaId) -> tuple[Beliefs, ...]:
        """Return the beliefs that a replica has a part in."""
        return self._of_replica.get(replica, ())

    def ask_replays_through(self, replica: ReplicaId, ask: Callable[[ReplayRequest], None]) -> None:
        """Say who asks a replica for replays."""
        self._asking[replica] = ask

    def observe_start(self, replica: ReplicaId, start_s: float) -> None:
        """Hear when the replica's process began; a later time than before is a restart."""
        self._ask(
            replica,
            [r for c in self.consumers(replica) for r in c.observe_start(replica, start_s)],
        )

    def restarted(self, replica: ReplicaId, num_ranks: int) -> None:
        """Forget what a replica held: it began again, or may have."""
        self._ask(replica, [r for c in self.consumers(replica) for r in c.restarted(replica)])
        self.forget(replica, num_ranks)

    def forget(self, replica: ReplicaId, num_ranks: int) -> None:
        """Forget what was guessed; what events told is the consumers' business."""
        for beliefs in self._of_replica.get(replica, ()):
            for rank in range(num_ranks):
                beliefs.forget(SourceId(replica, rank))

    def collapsed(self, source: SourceId) -> None:
        """What was believed of a source no longer comes: believe less, or begin anew."""
        for beliefs in self._of_replica.get(source.replica, ()):
            if beliefs.announces(source):
                beliefs.consumer.distrust(source)
            else:
                beliefs.forget(source)

    def tell(
        self, call: Call, session: str, salt: str | None, model: str | None, *, num_tokens: int
    ) -> ToldPrompt | Awaitable[ToldPrompt] | None:
        """Return the prompt in blocks, as an awaitable while the thread is at it.

        `num_tokens` is the estimate to go by where the tokens are not counted. None where no
        replica of the model is known.
        """
        found = self._found(call, session, salt, model)
        if found is None:
            return None
        beliefs, scope, prompts, asked = found
        if prompts is None or asked is None:
            return self._chunked(call, scope, beliefs, num_tokens)
        told = prompts.tell(asked, beliefs.block_sizes)
        if isinstance(told, Told):
            return ToldPrompt(beliefs, told.blocks, asked, told.proof)
        if told is None:
            return self._chunked(call, scope, beliefs, num_tokens)
        return self._waited(told, prompts, asked, call, scope, beliefs, num_tokens)

    def peek(
        self, call: Call, session: str, salt: str | None, model: str | None, *, num_tokens: int
    ) -> ToldPrompt | None:
        """Do the same at once, however long it takes, and remember nothing."""
        found = self._found(call, session, salt, model)
        if found is None:
            return None
        beliefs, scope, prompts, asked = found
        blocks = None
        if prompts is not None and asked is not None:
            blocks = prompts.peek(asked, beliefs.block_sizes)
        if blocks is None:
            return self._chunked(call, scope, beliefs, num_tokens)
        return ToldPrompt(beliefs, blocks, asked)

    def hits(self, told: ToldPrompt, now: float) -> PromptHits:
        """Return what each source holds of the prompt now."""
        return PromptHits(told.beliefs.matches(told.blocks, now=now), told.blocks.num_tokens)

    def sent(self, told: ToldPrompt, source: SourceId, model: str | None, now: float) -> None:
        """The prompt is on its way: count it as held there, and do what had to wait."""
        told.source = source
        told.expectation = told.beliefs.routed(source, told.blocks, now=now)
        prompts = self._prompts(model)
        if told.proof is not None and prompts is not None:
            prompts.later(told.proof)
            told.proof = None

    def prefilled(self, told: ToldPrompt, now: float) -> None:
        """Its prefill is done, or was given up."""
        if told.expectation is not None and told.source is not None:
            told.beliefs.arrived(told.source, told.expectation, now=now)
            told.expectation = None

    def answered(
        self,
        told: ToldPrompt,
        source: SourceId,
        model: str | None,
        *,
        believed_tokens: int,
        cached_tokens: int | None,
        reply: bytes | None,
        now: float,
    ) -> None:
        """Learn from an answer: the size of an imitated pool, and the reply's tokens."""
        if cached_tokens is not None:
            told.beliefs.answered(
                source, told.blocks, predicted=believed_tokens, delivered=cached_tokens
            )
        prompts = self._prompts(model)
        if prompts is None or told.asked is None or reply is None or told.blocks.is_chunked:
            return

        def held(blocks: PromptBlocks) -> None:
            if not told.beliefs.announces(source):
                told.beliefs.routed(source, blocks, now=now)

        prompts.later(prompts.learn_reply(told.asked, reply, held))

    def _prompts(self, model: str | None) -> PromptTokens | None:
        known = None if model is None else self._models.named(model)
        return None if known is None else known.prompts

    def _found(
        self, call: Call, session: str, salt: str | None, model: str | None
    ) -> tuple[Beliefs, IndexScope, PromptTokens | None, Asked | None] | None:
        base = None if model is None else self._models.base_of(model)
        beliefs = self._beliefs.get(base) or self._beliefs.get(None)
        if beliefs is None:
            return None
        adapter = None if model is None else self._models.adapter_of(model)
        scope = IndexScope(salt=salt, adapter=adapter)
        prompts = self._prompts(model)
        asked = None if prompts is None else prompts.asked(call, session, scope)
        return beliefs, scope, prompts, asked

    def _chunked(
        self, call: Call, scope: IndexScope, beliefs: Beliefs, num_tokens: int
    ) -> ToldPrompt:
        self.num_chunked += 1
        text = _text_of(call)
        chunk_tokens = num_tokens * CHUNK_BYTES / max(1, len(text))
        chains = {CHUNK_BYTES: chunk_chain(text, scope)}
        return ToldPrompt(beliefs, PromptBlocks(num_tokens, chains, chunk_tokens=chunk_tokens))

    async def _waited(
        self,
        cold: Cold,
        prompts: PromptTokens,
        asked: Asked,
        call: Call,
        scope: IndexScope,
        beliefs: Beliefs,
        num_tokens: int,
    ) -> ToldPrompt:
        """Wait for the thread, but not long; the state it makes serves the next turn anyway."""
        future = asyncio.wrap_future(cold)
        done, _ = await asyncio.wait([future], timeout=COLD_WAIT_S)
        if done and not future.cancelled() and (made := future.result()) is not None:
            prompts.keep(asked, made[0])
            return ToldPrompt(beliefs, made[1], asked)
        told = self._chunked(call, scope, beliefs, num_tokens)

        def late(late_future: asyncio.Future[tuple[PromptState, PromptBlocks] | None]) -> None:
            made = None if late_future.cancelled() else late_future.result()
            if made is None:
                return
            prompts.keep(asked, made[0])
            if told.source is not None and not beliefs.announces(told.source):
                beliefs.routed(told.source, made[1], now=time.monotonic())

        if not done:
            future.add_done_callback(late)
        return told

    def _ask(self, replica: ReplicaId, requests: Iterable[ReplayRequest]) -> None:
        """Have replays asked for; where nobody does, none will come."""
        for request in requests:
            ask = self._asking.get(replica)
            if ask is not None:
                ask(request)
                continue
            for consumer in self.consumers(replica):
                consumer.replay_ended(request, answered=False)


def warm_up() -> None:
    """Compile, or load, what works on tables, which would stop the event loop at its first use."""
    chain = index_chain(np.arange(64, dtype=np.int32), IndexScope(), block_size=16)
    beliefs, prompt = Beliefs(), PromptBlocks(64, {16: chain})
    guessed, announcing = SourceId(ReplicaId("guessed")), SourceId(ReplicaId("announcing"))
    beliefs.add_source(guessed, announces=False, block_size=16, capacity_tokens=32)
    beliefs.add_source(announcing, announces=True)
    tokens = np.arange(16, dtype=np.int32)
    events = (BlockStored((1,), None, tokens, 16), BlockRemoved((1,)), AllBlocksCleared())
    batch = encode_batch(events, timestamp_s=0.0)
    beliefs.consumer.receive(announcing.replica, 0, batch)
    for now in (0.0, 1.0):
        beliefs.routed(guessed, prompt, now=now)
    beliefs.matches(prompt, now=2.0).of(guessed)
    beliefs.forget(guessed)


def _text_of(call: Call) -> bytes:
    """Return what of a body comes again in the next turn, from its beginning."""
    fields = call.fields
    for raw in (fields.messages, fields.input, fields.prompt):
        if len(raw):
            return bytes(fields.system) + bytes(fields.instructions) + bytes(raw)
    return call.body
