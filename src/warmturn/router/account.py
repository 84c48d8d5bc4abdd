"""What one gateway knows of one source: its own requests there, how fast it answers, how true hits are.

| number | source | unit | lifetime | missing |
| --- | --- | --- | --- | --- |
| own running | placed and not ended | requests | exact | 0 |
| others' running | the replica's metrics less the own at that moment | requests | next poll | 0 |
| queued prefill | placed without a first byte: prompt less expected hit | tokens | exact | 0 |
| rates | times to the first token of streamed answers | seconds | refreshed each second | assumed |
| delivered share | `cached_tokens` against what was believed | share 0-1 | some 20 answers | 1 |
"""

from collections.abc import Collection
from typing import NamedTuple

from warmturn.errors import BrokenInvariant
from warmturn.fleet import HitFeedback, LearnedRates, LoadView, RateLearner, SmoothedLoad, SourceId
from warmturn.fleet.load import SmoothedLevel
from warmturn.fleet.rates import UNMEASURED
from warmturn.router.ranking import uniform
from warmturn.router.views import Candidate, PrefixHit

__all__ = ["Snapshot", "SourceAccount"]

_RATES_LIFETIME_S = 1.0


class Snapshot(NamedTuple):
    """An account as it stood: what a `Candidate` is made from, once somebody wants to see one."""

    source: SourceId
    is_alive: bool
    drain_start_s: float | None
    drain_s: float
    weight: float
    capacity_tokens: int | None
    num_running: int
    load: SmoothedLevel
    queued_prefill_tokens: int
    delivered_share: float
    rates: LearnedRates
    host_tokens_per_s: float | None
    storage_tokens_per_s: float | None

    def takes(self, session: str, *, is_here: bool, now: float) -> bool:
        """Say whether it may take the session's turn.

        One that drains takes nothing new, and hands what it has over bit by bit: after a share of
        the time that share of the sessions, the same ones on every gateway.
        """
        if not self.is_alive or self.drain_start_s is None:
            return self.is_alive
        if not is_here or self.drain_s <= 0:
            return False
        handed_share = (now - self.drain_start_s) / self.drain_s
        return uniform(f"drain {session}", self.source) > handed_share

    def candidate(
        self,
        *,
        is_alive: bool,
        session_tokens: int,
        hit: PrefixHit,
        credit: float,
        survival: float,
        now: float,
    ) -> Candidate:
        """Return what a policy sees, as of `now`."""
        load_requests = self.load.mean_at(now)
        return Candidate(
            self.source,
            is_alive=is_alive,
            weight=self.weight,
            capacity_tokens=self.capacity_tokens,
            load=LoadView(
                self.num_running, load_requests, self.queued_prefill_tokens, session_tokens
            ),
            hit=hit,
            trust=credit * self.delivered_share,
            survival=survival,
            rates=self.rates,
            host_tokens_per_s=self.host_tokens_per_s,
            storage_tokens_per_s=self.storage_tokens_per_s,
        )


class SourceAccount:
    """One source's entry in the dispatcher's books.

    Invariants, checked by `check()`:
    1. No count is below zero.
    2. Where nothing of ours runs, nothing of ours is queued.
    """

    def __init__(
        self,
        source: SourceId,
        *,
        now: float,
        models: Collection[str] = (),
        weight: float = 1.0,
        capacity_tokens: int | None = None,
    ) -> None:
        """Without `models` it takes requests for any. Raises `InvalidInput` as `Candidate` does."""
        Candidate(source, weight=weight, capacity_tokens=capacity_tokens)  # refuses bad numbers now
        self.source = source
        self.models = frozenset(models)
        self.weight, self.capacity_tokens = weight, capacity_tokens
        self.is_alive = True
        self.drain_start_s: float | None = None
        self.drain_s = 0.0
        self.num_placed = 0
        self.num_own = 0
        self.num_others = 0
        self.queued_prefill_tokens = 0
        self.feedback = HitFeedback()
        self.emptied_s = float("-inf")
        """When it last lost all it held; what a session left there before is gone."""
        self.rates = UNMEASURED
        self._host_tokens_per_s: float | None = None
        self._storage_tokens_per_s: float | None = None
        self._load = SmoothedLoad(now=now)
        self._learner = RateLearner()
        self._rates_at_s = now
        self._snapshot: Snapshot | None = None

    @property
    def num_running(self) -> int:
        """Requests there, of this gateway and of others."""
        return self.num_own + self.num_others

    def serves(self, model: str | None) -> bool:
        """Say whether it takes requests for `model`."""
        return model is None or not self.models or model in self.models

    def snapshot(self) -> Snapshot:
        """Return the account as it stands; the same object until something changes."""
        if self._snapshot is None:
            self._snapshot = Snapshot(
                self.source, self.is_alive, self.drain_start_s, self.drain_s, self.weight,
                self.capacity_tokens, self.num_running, self._load.state,
                self.queued_prefill_tokens, self.feedback.delivered_share, self.rates,
                self._host_tokens_per_s, self._storage_tokens_per_s,
            )  # fmt: skip
        return self._snapshot

    def set_alive(self, *, is_alive: bool) -> None:
        """Say whether it can be sent anything."""
        self.is_alive, self._snapshot = is_alive, None

    def drain(self, *, over_s: float, now: float) -> None:
        """Take no new sessions from now on, and hand those it has over within `over_s` seconds."""
        self.drain_start_s, self.drain_s, self._snapshot = now, over_s, None

    def undrain(self) -> None:
        """Take sessions again."""
        self.drain_start_s = self._snapshot = None

    def set_capacity(self, capacity_tokens: int | None) -> None:
        """Say how much its device pool holds."""
        Candidate(self.source, capacity_tokens=capacity_tokens)
        self.capacity_tokens, self._snapshot = capacity_tokens, None

    def set_loading_rates(
        self, *, host_tokens_per_s: float | None, storage_tokens_per_s: float | None
    ) -> None:
        """Say how fast it brings blocks up from lower tiers."""
        self._host_tokens_per_s = host_tokens_per_s
        self._storage_tokens_per_s = storage_tokens_per_s
        self._snapshot = None

    def take(self, queued_tokens: int, *, now: float) -> None:
        """A request was placed here."""
        self.num_placed += 1
        self.num_own += 1
        self.queued_prefill_tokens += queued_tokens
        self._load.set_level(self.num_running, now=now)
        self._snapshot = None

    def release(self, queued_tokens: int, *, now: float) -> None:
        """A request that was placed here is over; so much of it was still queued."""
        self.num_own -= 1
        self.queued_prefill_tokens -= queued_tokens
        self._load.set_level(self.num_running, now=now)
        self._snapshot = None

    def prefilled(self, queued_tokens: int) -> None:
        """So much is no longer queued."""
        self.queued_prefill_tokens -= queued_tokens
        self._snapshot = None

    def learn_rate(
        self, *, prefill_tokens: int, num_running: int, ttft_s: float, now: float
    ) -> None:
        """Learn from one time to the first token."""
        self._learner.observe(prefill_tokens=prefill_tokens, num_running=num_running, ttft_s=ttft_s)
        if not 0 <= now - self._rates_at_s < _RATES_LIFETIME_S:
            self.rates, self._rates_at_s, self._snapshot = self._learner.rates, now, None

    def learn_hit(self, *, believed_tokens: int, delivered_tokens: int) -> None:
        """Learn from one answer's cached tokens."""
        self.feedback.observe(predicted_tokens=believed_tokens, delivered_tokens=delivered_tokens)
        self._snapshot = None

    def forget_hits(self) -> None:
        """What was believed of it was dropped, so what came of that says nothing any more."""
        self.feedback.reset()
        self._snapshot = None

    def emptied(self, *, now: float) -> None:
        """It restarted or its cache was reset: nothing of any session is there any more."""
        self.emptied_s = now
        self.forget_hits()

    def observe_running(self, num_requests: int, *, now: float) -> None:
        """Note how many the replica says it has, whoever sent them."""
        self.num_others = max(0, num_requests - self.num_own)
        self._load.set_level(self.num_running, now=now)
        self._snapshot = None

    def smoothed_requests(self, now: float) -> float:
        """Return its load, averaged over some seconds."""
        return self._load.state.mean_at(now)

    def check(self) -> None:
        """Raise `BrokenInvariant` naming the first numbered invariant that does not hold."""
        if min(self.num_own, self.num_others, self.queued_prefill_tokens) < 0:
            raise BrokenInvariant(f"account of {self.source}: invariant 1: a count is below 0")
        if self.num_own == 0 and self.queued_prefill_tokens:
            raise BrokenInvariant(f"account of {self.source}: invariant 2: queued, nothing runs")
