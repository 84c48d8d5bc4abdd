"""A replica's use of the tiers below its pool: what is written through, loaded, waited for.

One sequence's prompt while it loads; `frontier` is `num_computed`, and moves to the right only:

    0 ....... frontier ....... split ....... stop ....... end
      in pool | computed ahead | on its way  | computed when all before it is there
"""

from dataclasses import dataclass

from warmturn.cache.loading import BlockState, Load
from warmturn.cache.pool import Pool
from warmturn.cache.reload import ReloadChoice
from warmturn.cache.tiers import TierManager
from warmturn.cache.transfers import Done, TierName, chain_keys
from warmturn.replica.sequence import Sequence
from warmturn.replica.step import Step
from warmturn.types import HashWords, RequestId

__all__ = ["Offload"]

LATE_FACTOR = 1.5
"""A load is late after so many times its predicted time …"""
LATE_S = 0.005
"""… and this. Then its request computes blocks itself, more the longer it has waited."""


@dataclass(slots=True)
class _State:
    """What a sequence has going on in the tiers."""

    lookup: int | None = None
    lookup_until_s: float = 0.0
    load: Load | None = None
    choice: ReloadChoice | None = None
    chosen_s: float = 0.0
    holder: RequestId | None = None


class Offload:
    """Joins one pool, one tier manager and the sequences of one replica. Pure, like they are."""

    def __init__(self, pool: Pool, tiers: TierManager) -> None:
        self.tiers = tiers
        self._pool = pool
        self._states: dict[RequestId, _State] = {}
        self._saves: dict[int, RequestId] = {}  # order -> who holds its device blocks
        self._ending: list[tuple[Load, RequestId]] = []  # cancelled, their copies still running

    # --- before admission ---

    def submitted(self, sequence: Sequence, *, now: float) -> None:
        """Begin to look for the prompt in the shared store."""
        state = self._states[sequence.request_id] = _State()
        words = self._usable(sequence)
        hits = self._pool.match(words)
        state.lookup = self.tiers.look_up(chain_keys(words), first=hits, now=now)
        if state.lookup is not None:
            patience_s = self.tiers.patience_s(hits, sequence.num_prompt, now=now)
            state.lookup_until_s = now + patience_s

    def may_admit(self, sequence: Sequence, *, now: float) -> bool:
        """Tell whether the look-up is answered, or has taken too long to be worth the wait."""
        state = self._states[sequence.request_id]
        if state.lookup is None or not self.tiers.is_out(state.lookup):
            return True
        if now < state.lookup_until_s:
            return False
        self.tiers.stats.lookups["late"] += 1
        state.lookup = None
        return True

    # --- loading ---

    def admitted(self, sequence: Sequence, *, now: float) -> None:
        """Decide what of the prompt is loaded, and begin. The sequence has its blocks."""
        request_id = sequence.request_id
        state = self._states[request_id]
        first = sequence.num_computed // self._pool.block_size
        chain = chain_keys(self._usable(sequence))
        choice, places = self.tiers.plan_load(
            chain, first=first, num_tokens=sequence.num_tokens, now=now
        )
        state.choice, state.chosen_s = (choice if places else None), now
        if not choice.loads:
            return
        state.holder = RequestId(f"\0load {request_id}")
        self._pool.hold(state.holder, request_id, choice.stop)
        state.load = self.tiers.load(
            chain,
            places[choice.split - first : choice.stop - first],
            split=choice.split,
            device_blocks=self._pool.table(request_id)[: choice.stop].tolist(),
            predicted_s=choice.load_s,
            now=now,
        )

    def is_loading(self, sequence: Sequence) -> bool:
        """Tell whether blocks of the sequence are on their way."""
        state = self._states.get(sequence.request_id)
        return state is not None and state.load is not None

    def advance(self, sequence: Sequence, *, now: float) -> int:
        """Move the frontier over blocks that are loaded; return how many blocks it moved."""
        load, size = self._states[sequence.request_id].load, self._pool.block_size
        moved = 0
        while load is not None and sequence.num_computed % size == 0:
            block = sequence.num_computed // size
            if not load.split <= block < load.stop or load.state(block) != BlockState.LOADED:
                break
            sequence.skip(size, load.source(block))
            moved += 1
        if load is not None and sequence.num_computed >= load.stop * size:
            self._end_load(sequence, now)
        return moved

    def num_computable(self, sequence: Sequence, budget: int, *, now: float) -> int:
        """Return how many of the next tokens are to be computed now; 0 to wait for blocks."""
        load, size = self._states[sequence.request_id].load, self._pool.block_size
        if load is None:
            return min(sequence.num_left, budget)
        block = sequence.num_computed // size
        if block < load.split:
            return min(load.split * size - sequence.num_computed, budget)
        if load.state(block) == BlockState.WAITING:
            self._give_up_late(load, block, budget, now)
        stop = block
        while stop < load.stop and load.state(stop) == BlockState.LEFT:
            stop += 1
        if stop == load.stop:
            return min(sequence.num_left, budget)
        chunk = min(stop * size - sequence.num_computed, budget)
        # End at a block's end where that can be: what is loaded begins at one.
        return chunk - (sequence.num_computed + chunk) % size if chunk >= size else chunk

    def _give_up_late(self, load: Load, block: int, budget: int, now: float) -> None:
        """Where a load is late, take over as many blocks as could have been computed meanwhile.

        The longer it has been late, the longer it will be: so the request never takes much more
        than twice what computing alone would have taken, and usually far less.
        """
        late_s = now - load.started_s - (LATE_FACTOR * load.predicted_s + LATE_S)
        size = self._pool.block_size
        one_s = self.tiers.prefill.predict(block * size, (block + 1) * size, now=now)
        count = min(int(late_s / one_s) if late_s > 0 else 0, budget // size)
        stop = block
        while stop < min(block + count, load.stop) and load.state(stop) == BlockState.WAITING:
            stop += 1
        if stop > block:
            self.tiers.give_up(load, block, stop, now=now)

    def _end_load(self, sequence: Sequence, now: float) -> None:
        """Let go of the load; its holder stays until nothing is copied any more."""
        state = self._states[sequence.request_id]
        if state.load is None or state.holder is None:
            return
        if not state.load.is_over:
            self.tiers.cancel(state.load, now=now)
        self._ending.append((state.load, state.holder))
        state.load, state.holder = None, None
        self._release_ended(now)

    # --- ahead of time ---

    def prefetch(self, words: HashWords, *, now: float) -> int:
        """Begin to bring a chain's blocks up to the host; return how many are on their way.

        Half of the host tier at most: what comes must not push out what came with it.
        """
        chain = chain_keys(words)
        first = self._pool.match(words)
        places = self.tiers.locate(chain, first=first, now=now)
        places = places[: max(self.tiers.host.num_slots // 2 - first, 0)]
        if all(place == TierName.HOST for place in places):
            self.tiers.touch(chain, now=now)
            return 0
        load = self.tiers.load(
            chain, places, split=first, device_blocks=None, predicted_s=0.0, now=now
        )
        return load.num_open

    # --- storing ---

    def stored(self, sequence: Sequence, num_blocks: int, num_new: int) -> None:
        """Write the blocks `[num_blocks - num_new, num_blocks)`, just named, through to the host."""
        if num_new == 0:
            return
        words = sequence.chain_words(num_blocks * self._pool.block_size)
        chain, first = chain_keys(words), num_blocks - num_new
        blocks = self._pool.table(sequence.request_id)[first:num_blocks].tolist()
        order = self.tiers.store(chain, blocks, first=first)
        if order is not None:
            holder = RequestId(f"\0store {order}")
            self._pool.hold(holder, sequence.request_id, num_blocks)
            self._saves[order] = holder

    def computed(self, step: Step, seconds: float, *, now: float) -> None:
        """Learn from a step how long prefilling takes; steps that only decode tell nothing."""
        if all(work.is_decode for work in step.works):
            return
        lengths = [(len(work.token_ids), work.position) for work in step.works]
        pairs = sum(n * (position + n / 2) for n, position in lengths)
        self.tiers.prefill.observe(step.num_tokens, pairs, seconds, now=now)

    def first_token(self, sequence: Sequence, *, now: float) -> None:
        """Compare what the choice promised with what it took."""
        state = self._states.get(sequence.request_id)
        if state is not None and state.choice is not None:
            self.tiers.judge(state.choice, now - state.chosen_s)
            state.choice = None

    # --- the end of things ---

    def completed(self, done: Done, *, now: float) -> None:
        """Take in the end of an order."""
        self.tiers.complete(done, now=now)
        holder = self._saves.pop(done.number, None)
        if holder is not None:
            self._pool.release(holder, now=now)
        self._release_ended(now)

    def left(self, sequence: Sequence, *, now: float) -> None:
        """The sequence gave up its blocks and may come back."""
        self._end_load(sequence, now)
        self._states[sequence.request_id].choice = None

    def ended(self, sequence: Sequence, *, now: float) -> None:
        """The sequence is over; what it used stays warm."""
        if self._states.get(sequence.request_id) is None:
            return
        self._end_load(sequence, now)
        del self._states[sequence.request_id]
        words = sequence.chain.words[: sequence.num_computed // self._pool.block_size]
        self.tiers.touch(chain_keys(words), now=now)

    def _release_ended(self, now: float) -> None:
        for load, holder in [*self._ending]:
            if load.num_copying == 0:
                self._ending.remove((load, holder))
                self._pool.release(holder, now=now)

    @property
    def holds_blocks(self) -> bool:
        """True while transfers hold blocks of the pool."""
        return bool(self._saves or self._ending)

    def _usable(self, sequence: Sequence) -> HashWords:
        """Return the chain of all blocks that may be hits: one token is always left to compute."""
        most = (sequence.num_tokens - 1) // self._pool.block_size
        return sequence.chain_words(sequence.num_tokens)[:most]
