"""The state machine of one replica: which tokens of which requests are computed next.

A driver (the engine, the simulator) owns clock and loop:
`submit` at any time; then in turn `plan`, execute, `complete`. Never two steps at once.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from warmturn.blocks.chain import ChainBuilder
from warmturn.blocks.keys import CacheScope
from warmturn.blocks.schemes import HashScheme
from warmturn.cache.events import CacheEvent
from warmturn.cache.pool import Pool, PoolChanges
from warmturn.cache.tiers import TierManager
from warmturn.cache.transfers import Done, Order
from warmturn.errors import BrokenInvariant, InvalidRequest, NeverFits
from warmturn.metrics import TurnMetrics
from warmturn.replica.announce import moved, removed, stored
from warmturn.replica.offload import Offload
from warmturn.replica.sequence import Sequence, Submission
from warmturn.replica.step import Sampled, Step, Work
from warmturn.types import HashWords, RequestId

__all__ = ["Admission", "Progress", "Replica", "StepReport"]


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that got its blocks, and what was to be loaded into them, for the first time."""

    request_id: RequestId
    prompt_tokens: int
    cached_tokens: int
    loaded_tokens: Mapping[str, int] = field(default_factory=dict)
    """Of `cached_tokens`, those from below the pool, by tier."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A token one request gained in a step."""

    sampled: Sampled
    num_cached_tokens: int
    finish_reason: str | None
    turn: TurnMetrics | None
    """Set with `finish_reason`."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did, in the order in which a driver tells it on."""

    progress: tuple[Progress, ...]
    admitted: tuple[Admission, ...]
    num_preempted: int
    changes: PoolChanges
    events: tuple[CacheEvent, ...]
    """Empty unless the replica was told to announce; removals before stores."""


class Replica:
    """Continuous batching with chunked prefill over one pool.

    - Decodes come first in every step, in order of admission; what is left of the step's
      token budget goes to prefill chunks, first of running requests, then of waiting ones.
    - While anything decodes the budget is `max_step_tokens_decoding`, so that a long
      prompt does not stall the others' next token; alone, a prompt gets `max_step_tokens`.
    - A waiting request is admitted, first come first served, when the pool has blocks for
      all of its tokens: "not now" waits, "never" is refused by `submit`.
    - When a decode needs a block and none is free, the request admitted last gives up its
      blocks and waits at the head of the queue; what it had stored stays a hit.
    - With tiers below the pool a prompt may wait for blocks on their way up. It holds its blocks
      then and takes no part in steps; nobody else waits for it.

    A request alone always fits, so the one admitted first always gets on.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        scheme: HashScheme,
        model: str,
        max_model_len: int,
        max_running: int = 64,
        max_step_tokens: int = 2048,
        max_step_tokens_decoding: int = 512,
        prefix_caching: bool = True,
        announce: bool = False,
        tiers: TierManager | None = None,
    ) -> None:
        """`max_model_len`: most tokens of prompt + reply; the pool's size caps it.

        Budgets of 2,048 alone and 512 beside decodes: longer chunks gain 6 to 16 % at
        6,000 tokens, shorter ones keep the next token of others near (docs/design/executor.md).
        `announce`: collect KV events for every report. `tiers`: what lies below the pool; its
        orders (`take_orders`) are then the driver's to carry out and report (`transferred`).
        """
        self.pool = pool
        self.max_model_len = min(max_model_len, pool.num_blocks * pool.block_size)
        self._scheme = scheme
        self._model = model
        self._max_running = max_running
        self._max_step_tokens = max_step_tokens
        self._max_step_tokens_decoding = max_step_tokens_decoding
        self._prefix_caching = prefix_caching
        self._announce = announce
        self._offload = None if tiers is None or not prefix_caching else Offload(pool, tiers)
        self._events: list[CacheEvent] = []  # of blocks loaded since the last report
        self._planned_s = 0.0
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of admission
        self._by_id: dict[RequestId, Sequence] = {}
        self._step_number = 0
        self._in_flight: Step | None = None
        self._admitted: list[Admission] = []
        self._num_preempted = 0

    # --- what is there ---

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that hold none yet, or gave theirs up."""
        return len(self._waiting)

    def num_generated(self, request_id: RequestId) -> int:
        """Return how many tokens of the reply exist so far."""
        return self._by_id[request_id].num_generated

    # --- requests come and go ---

    def submit(self, submission: Submission, *, now: float) -> None:
        """Queue a request.

        Raises `NeverFits` for a prompt, or a prompt with `max_tokens`, that is longer
        than this replica can hold, and `InvalidRequest` for an id in use or an empty
        prompt; nothing has changed then.
        """
        limit = self._limit_of(submission)
        scope = CacheScope(model=self._model, salt=submission.salt)
        chain = ChainBuilder(scope, block_size=self.pool.block_size, scheme=self._scheme)
        sequence = Sequence(submission, chain, limit=limit, now=now)
        self._by_id[submission.request_id] = sequence
        self._waiting.append(sequence)
        if self._offload is not None:
            self._offload.submitted(sequence, now=now)

    def cancel(self, request_id: RequestId, *, now: float) -> TurnMetrics | None:
        """End a request at once and free its blocks; None when it has ended already.

        Safe while a step is in flight: freed blocks are not given out before `complete`.
        """
        sequence = self._by_id.pop(request_id, None)
        if sequence is None:
            return None
        if sequence in self._running:
            self._running.remove(sequence)
            self.pool.release(request_id, now=now)
        else:
            self._waiting.remove(sequence)
        self._leave_tiers(sequence, now)
        return sequence.turn(now)

    def _leave_tiers(self, sequence: Sequence, now: float) -> None:
        if self._offload is not None:
            self._offload.ended(sequence, now=now)

    def _limit_of(self, submission: Submission) -> int:
        """Return the longest this sequence may become; refuse what can never be held."""
        asked, longest = submission.max_tokens, self.max_model_len
        num_prompt = len(submission.prompt_token_ids)
        if submission.request_id in self._by_id:
            raise InvalidRequest(f"request id {submission.request_id!r} is in use; choose another")
        if num_prompt == 0:
            raise InvalidRequest("the prompt has no tokens; send at least one", param="prompt")
        if asked is not None and asked < 1:
            raise InvalidRequest(f"max_tokens is {asked}; ask for at least 1", param="max_tokens")
        if num_prompt + (1 if asked is None else asked) > longest:
            raise NeverFits(self._never_text(num_prompt, asked), code="context_length_exceeded")
        return longest if asked is None else num_prompt + asked

    def _never_text(self, num_prompt: int, asked: int | None) -> str:
        reply = "no reply of at least 1 token" if asked is None else f"max_tokens {asked}"
        pool_tokens = self.pool.num_blocks * self.pool.block_size
        return (
            f"the prompt has {num_prompt} tokens and with {reply} does not fit into the "
            f"{self.max_model_len} tokens this replica holds for one request (its pool has "
            f"{self.pool.num_blocks} blocks of {self.pool.block_size}, {pool_tokens} tokens); "
            "shorten the prompt, lower max_tokens or raise --num-blocks"
        )

    # --- one step ---

    def plan(self, *, now: float) -> Step | None:
        """Return the next step, or None when there is nothing to compute.

        Allocates what the step writes. Must be followed by `complete` before the next plan.
        """
        if self._in_flight is not None:
            raise BrokenInvariant(f"step {self._in_flight.number} is planned and not completed")
        self._take_loaded(now)
        works = self._plan_decodes(now)
        budget = (self._max_step_tokens_decoding if works else self._max_step_tokens) - len(works)
        works.extend(self._plan_prefills(budget, now))
        if not works:
            return None
        self._step_number += 1
        self._planned_s = now
        self._in_flight = Step(number=self._step_number, works=tuple(works))
        return self._in_flight

    def _plan_decodes(self, now: float) -> list[Work]:
        """Plan one token for each decoding sequence; may preempt those admitted last."""
        works: list[Work] = []
        for sequence in tuple(self._running):
            if not sequence.is_decoding:
                continue
            while sequence in self._running and not self._has_room(sequence, now):
                if self._waits_for_copies():
                    return works
                self._preempt_last(now)
            if sequence not in self._running:
                break  # it was the last one itself
            works.append(self._work(sequence, 1))
        return works

    def _has_room(self, sequence: Sequence, now: float) -> bool:
        return self.pool.append(sequence.request_id, sequence.num_tokens, now=now)

    def _waits_for_copies(self) -> bool:
        """Tell whether a request alone lacks room only until its neighbours' blocks are copied."""
        return len(self._running) == 1 and self._offload is not None and self._offload.holds_blocks

    def _preempt_last(self, now: float) -> None:
        victim = self._running.pop()
        if self._offload is not None:
            self._offload.left(victim, now=now)
        self.pool.release(victim.request_id, now=now)
        victim.preempt()
        self._waiting.appendleft(victim)
        self._num_preempted += 1

    def _plan_prefills(self, budget: int, now: float) -> Iterator[Work]:
        for sequence in self._running:
            if budget > 0 and not sequence.is_decoding:
                chunk = self._computable(sequence, budget, now)
                if chunk:
                    budget -= chunk
                    yield self._work(sequence, chunk)
        for sequence in tuple(self._waiting):
            if budget <= 0 or len(self._running) >= self._max_running:
                return
            if self._offload is not None and not self._offload.may_admit(sequence, now=now):
                continue  # its look-up is short, and the others need not wait for it
            if not self._admit(sequence, now):
                return
            chunk = self._computable(sequence, budget, now)
            if chunk:
                budget -= chunk
                yield self._work(sequence, chunk)

    def _computable(self, sequence: Sequence, budget: int, now: float) -> int:
        """Return how many of its next tokens are computed in this step; 0: it waits for blocks."""
        if self._offload is None:
            return min(sequence.num_left, budget)
        return self._offload.num_computable(sequence, budget, now=now)

    def _take_loaded(self, now: float) -> None:
        """Let loading sequences have what has arrived for them."""
        if self._offload is None:
            return
        for sequence in self._running:
            if not self._offload.is_loading(sequence):
                continue
            if self._offload.advance(sequence, now=now):
                self._events += self._store(sequence, now)
            self._note_admission(sequence)

    def _note_admission(self, sequence: Sequence) -> None:
        """Report an admission once, when it is known what was cached."""
        is_loading = self._offload is not None and self._offload.is_loading(sequence)
        if sequence.is_counted or is_loading:
            return
        sequence.is_counted = True
        cached, loaded = sequence.num_cached or 0, dict(sequence.loaded_tokens)
        self._admitted.append(Admission(sequence.request_id, sequence.num_prompt, cached, loaded))

    def _admit(self, sequence: Sequence, now: float) -> bool:
        """Give a waiting sequence its blocks; False for "not now"."""
        request_id, num_tokens = sequence.request_id, sequence.num_tokens
        words = sequence.chain_words(num_tokens if self._prefix_caching else 0)
        hits = self.pool.allocate(request_id, words, num_tokens, now=now)
        if hits is None:
            return False
        sequence.admit(hits * self.pool.block_size, now)
        self._waiting.remove(sequence)
        self._running.append(sequence)
        if self._offload is not None:
            self._offload.admitted(sequence, now=now)
        self._note_admission(sequence)
        return True

    def _work(self, sequence: Sequence, num_new: int) -> Work:
        start, stop = sequence.num_computed, sequence.num_computed + num_new
        held = self.pool.table(sequence.request_id)
        return Work(
            request_id=sequence.request_id,
            token_ids=sequence.tokens(start, stop),
            position=start,
            block_ids=held[: self.pool.blocks_for(stop)].copy(),
            samples=stop == sequence.num_tokens,
            is_decode=sequence.is_decoding,
        )

    def complete(self, sampled: SequenceOf[Sampled], *, now: float) -> StepReport:
        """Take in what the executor computed for the planned step.

        `sampled` has one entry per work with `samples`; entries of requests cancelled in
        the meantime are ignored.
        """
        step, self._in_flight = self._in_flight, None
        if step is None:
            raise BrokenInvariant("a step was completed that was not planned")
        changes = self.pool.drain()
        events: list[CacheEvent] = removed(changes.evicted) if self._announce else []
        events += self._events
        self._events = []
        if self._offload is not None:
            self._offload.computed(step, now - self._planned_s, now=now)
        chosen = {token.request_id: token for token in sampled}
        progress = []
        for work in step.works:
            sequence = self._by_id.get(work.request_id)
            if sequence is None:
                continue
            events.extend(self._advance(sequence, work, now))
            if work.samples:
                progress.append(self._add_token(sequence, chosen[work.request_id], now))
        return self._report(progress, changes, events)

    def fail(self, *, now: float) -> tuple[RequestId, ...]:
        """Drop the planned step and every request in it, after the executor raised."""
        step, self._in_flight = self._in_flight, None
        works = () if step is None else step.works
        failed = [w.request_id for w in works if self.cancel(w.request_id, now=now) is not None]
        return tuple(failed)

    def _advance(self, sequence: Sequence, work: Work, now: float) -> list[CacheEvent]:
        """Note computed tokens and store the blocks they filled."""
        sequence.advance(len(work.token_ids))
        if not self._prefix_caching:
            return []
        return self._store(sequence, now)

    def _store(self, sequence: Sequence, now: float) -> list[CacheEvent]:
        """Name the blocks that are full by now; write them through to the tiers below."""
        words = sequence.chain_words(sequence.num_computed)
        is_new = self.pool.store(sequence.request_id, words, now=now)
        if self._offload is not None:
            self._offload.stored(sequence, len(words), len(is_new))
        return stored(sequence, len(words), is_new) if self._announce else []

    def _add_token(self, sequence: Sequence, token: Sampled, now: float) -> Progress:
        reason = sequence.add_token(token.token_id, now)
        turn = None
        if self._offload is not None and sequence.num_generated == 1:
            self._offload.first_token(sequence, now=now)
        if reason is not None:
            turn = sequence.turn(now)
            self._running.remove(sequence)
            del self._by_id[sequence.request_id]
            self.pool.release(sequence.request_id, now=now)
            self._leave_tiers(sequence, now)
        return Progress(token, sequence.num_cached or 0, reason, turn)

    def _report(
        self, progress: list[Progress], changes: PoolChanges, events: list[CacheEvent]
    ) -> StepReport:
        report = StepReport(
            progress=tuple(progress),
            admitted=tuple(self._admitted),
            num_preempted=self._num_preempted,
            changes=changes,
            events=tuple(events),
        )
        self._admitted.clear()
        self._num_preempted = 0
        return report

    # --- tiers ---

    @property
    def waits_for_tiers(self) -> bool:
        """True while blocks or answers are on their way: plan again soon, or when they arrive."""
        return self._offload is not None and not self._offload.tiers.is_idle

    def prefetch(self, words: HashWords, *, now: float) -> int:
        """Begin to bring a chain's blocks up to the host; return how many are on their way."""
        return 0 if self._offload is None else self._offload.prefetch(words, now=now)

    def take_orders(self) -> list[Order]:
        """Return what the driver is to move; call it after every other method."""
        return [] if self._offload is None else self._offload.tiers.take_orders()

    def transferred(self, done: Done, *, now: float) -> list[CacheEvent]:
        """Take in the end of an order, at any time; return what it changed, if announcing."""
        if self._offload is None:
            raise BrokenInvariant(f"order {done.number} ended, but there are no tiers")
        self._offload.completed(done, now=now)
        return self.tier_events()

    def tier_events(self) -> list[CacheEvent]:
        """Return what changed in the tiers since the last call, if announcing."""
        changes = [] if self._offload is None else self._offload.tiers.take_changes()
        return moved(changes) if self._announce else []

    # --- upkeep ---

    def reset_prefix_cache(self, *, with_tiers: bool = False) -> bool:
        """Forget all cached content; False, and nothing changes, while requests hold blocks.

        `with_tiers`: what lies in tiers of our own too.
        """
        cleared = self.pool.reset()
        if cleared and with_tiers and self._offload is not None:
            self._offload.tiers.clear()
        return cleared

    def check(self) -> None:
        """Raise `BrokenInvariant` when the pool or the request lists contradict each other."""
        self.pool.check()
        if self._offload is not None:
            self._offload.tiers.check()
        listed = [s.request_id for s in (*self._running, *self._waiting)]
        if sorted(listed) != sorted(self._by_id):
            raise BrokenInvariant(f"listed requests {listed} are not the known {[*self._by_id]}")
