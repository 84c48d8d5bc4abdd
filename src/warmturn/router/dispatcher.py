"""Requests in, places out, and the books that the next decision is made from.

    place ──▶ sent ──▶ first_byte ──▶ ended          (given back exactly once)
      └────────┴──────▶ failed ──▶ place elsewhere

The gateway drives it with real time, the simulator with modelled time. It owns the account of each
source and where each session was last; what sources hold of a prompt it is told per request.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from warmturn.errors import BrokenInvariant, InvalidInput
from warmturn.fleet import SourceId
from warmturn.router.account import SourceAccount
from warmturn.router.affinity import Affinity
from warmturn.router.decision import Policy, expected_tokens
from warmturn.router.placement import Belief, Placement
from warmturn.session.bindings import Binding, Bindings
from warmturn.types import ReplicaId

__all__ = ["Dispatcher", "Survival"]

DEFAULT_TURNS_LEFT = 4.0
"""Further turns expected of any session, until something knows better. Chats have a few, agents
dozens; the price of moving is capped, so that more would change little."""
_DURATION_WEIGHT = 0.05
"""Of one answer in the mean time an answer takes: about the last forty count."""


class Survival(Protocol):
    """Chance that a session's blocks outlived its idle time. An optional input."""

    def __call__(self, source: SourceId, idle_s: float) -> float:
        """Return the chance 0-1 at `source` after `idle_s` seconds."""
        ...


class Dispatcher:
    """The fleet as one gateway sees it.

    Invariants, checked by `check()`:
    1. Each account's own count is the number of its open placements.
    2. Each account's queue is the sum of what its open placements have queued.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        shadow: Policy | None = None,
        bindings: Bindings | None = None,
        survival: Survival | None = None,
        turns_left: float = DEFAULT_TURNS_LEFT,
        max_running: int | None = None,
    ) -> None:
        """`shadow` is asked beside `policy` and never followed.

        `max_running` is what this gateway has in flight at once, times the sources alive.
        """
        if max_running is not None and max_running < 1:
            raise InvalidInput(f"at most {max_running} requests per replica; allow at least 1")
        self.policy, self.shadow = policy, shadow
        self.bindings = Bindings() if bindings is None else bindings
        self.max_running = max_running
        self._survival, self._turns_left = survival, turns_left
        self._accounts: dict[SourceId, SourceAccount] = {}
        self._places: dict[tuple[ReplicaId, int], SourceAccount] = {}  # the same, found quicker
        self._serving: dict[str | None, list[SourceAccount]] = {}
        self._keeps = policy if isinstance(policy, Affinity) else None
        self._open: set[Placement] = set()
        self._mean_answer_s = 1.0

    @property
    def wants_hits(self) -> bool:
        """Whether a policy asks what sources hold of the prompt."""
        return self.policy.wants_hits or (self.shadow is not None and self.shadow.wants_hits)

    @property
    def accounts(self) -> tuple[SourceAccount, ...]:
        """All sources, in the order they were added."""
        return tuple(self._accounts.values())

    @property
    def num_open(self) -> int:
        """Requests placed and not over."""
        return len(self._open)

    def account(self, source: SourceId) -> SourceAccount | None:
        """Return one source's account; None where it is not, or no longer, known."""
        return self._accounts.get(source)

    def add_source(
        self,
        source: SourceId,
        *,
        now: float,
        models: Collection[str] = (),
        weight: float = 1.0,
        capacity_tokens: int | None = None,
    ) -> SourceAccount:
        """Take a source in. Raises `InvalidInput` for one that is known, or for bad numbers."""
        if source in self._accounts:
            raise InvalidInput(f"source {source} is there already; remove it first")
        account = SourceAccount(
            source, now=now, models=models, weight=weight, capacity_tokens=capacity_tokens
        )
        self._accounts[source] = self._places[source.replica, source.rank] = account
        self._serving = {}
        return account

    def remove_replica(self, replica: ReplicaId) -> None:
        """Forget a replica's sources; its sessions are placed anew with their next turn."""
        for source in [s for s in self._accounts if s.replica == replica]:
            del self._accounts[source], self._places[source.replica, source.rank]
        self._serving = {}

    def of_replica(self, replica: ReplicaId) -> Iterator[SourceAccount]:
        """Yield the accounts of a replica's ranks."""
        return (a for a in self._accounts.values() if a.source.replica == replica)

    def serving(self, model: str | None) -> list[SourceAccount]:
        """Return the accounts of the sources that serve `model`."""
        known = self._serving.get(model)
        if known is None:
            known = [a for a in self._accounts.values() if a.serves(model)]
            if known or model is None:  # unknown names must not fill the table
                self._serving[model] = known
        return known

    def is_full(self, model: str | None) -> bool:
        """Say whether the sources of `model` have as many requests as they may."""
        if self.max_running is None or len(self._open) < self.max_running:
            return False
        living = [a for a in self.serving(model) if a.is_alive]
        return bool(living) and sum(a.num_own for a in living) >= self.max_running * len(living)

    def retry_after_s(self) -> float:
        """Return when a place will probably be free: about the time one answer takes, 1 to 60 s."""
        return min(60.0, max(1.0, self._mean_answer_s))

    def place(
        self,
        session: str,
        *,
        prompt_tokens: int,
        now: float,
        number: int = 0,
        model: str | None = None,
        parent: str | None = None,
        is_first_turn: bool = True,
        belief: Belief | None = None,
        tried: Sequence[SourceId] = (),
        policy: Policy | None = None,
        is_trial: bool = False,
    ) -> Placement:
        """Choose among the sources not in `tried`; the session is bound there until it is moved.

        `parent` is the session that this one was forked or spawned from. `policy` decides in place
        of the usual one. A trial leaves the books as they are: what would be done now, and why.
        """
        binding = self._bound(session, parent, model, now)
        here = None if binding is None else self._places.get((binding.replica, binding.rank))
        last = None
        if binding is not None:
            last = SourceId(binding.replica, binding.rank) if here is None else here.source
        placement = Placement(
            self.policy if policy is None else policy,
            self.shadow,
            session=session,
            prompt_tokens=prompt_tokens,
            number=number,
            last_source=last,
            held_tokens=_held_tokens(binding, here),
            is_first_turn=is_first_turn,
            turns_left=self._turns_left,
            belief=belief,
            survival=self._survival_of(binding, last, now),
            tried=tuple(tried),
            snapshots=[account.snapshot() for account in self.serving(model)],
            tokens_by_place=self.bindings.tokens_by_place(),
            placed_s=now,
        )
        if here is None or policy is not None or not self._stays(placement, here, model):
            self._decide(placement)
        if not is_trial:
            self._take(placement, model)
        return placement

    def sent(self, placement: Placement, now: float) -> None:
        """The request is on its way: from here the time to the first byte is measured."""
        placement.sent_s = now

    def first_byte(self, placement: Placement, now: float, *, is_streamed: bool) -> None:
        """Prefill is done there. Only a streamed answer's first byte tells how long that took."""
        account = placement.account
        if account is None or not placement.is_open:
            return
        account.prefilled(placement.queued_tokens)
        placement.queued_tokens = 0
        if is_streamed and placement.sent_s is not None:
            account.learn_rate(
                prefill_tokens=placement.ahead_tokens,
                num_running=placement.num_ahead,
                ttft_s=now - placement.sent_s,
                now=now,
            )

    def failed(self, placement: Placement, now: float) -> None:
        """The try is over without an answer."""
        self._release(placement, now)

    def ended(
        self,
        placement: Placement,
        now: float,
        *,
        model: str | None = None,
        cached_tokens: int | None = None,
        num_tokens: int | None = None,
    ) -> bool:
        """The answer is over; `num_tokens` is the length of prompt and answer, where known.

        Returns whether the source's hits have collapsed with this one: what was believed of it no
        longer comes.
        """
        account = placement.account
        if account is None or not placement.is_open:
            return False
        self._release(placement, now)
        if placement.sent_s is not None:
            took_s = now - placement.sent_s
            self._mean_answer_s += _DURATION_WEIGHT * (took_s - self._mean_answer_s)
        if num_tokens is not None:
            replica, rank = account.source.replica, account.source.rank
            key = _bound_name(placement.session, model)
            self.bindings.resize(key, replica, rank, num_tokens=num_tokens)
        if cached_tokens is None:
            return False
        account.learn_hit(believed_tokens=placement.believed_tokens, delivered_tokens=cached_tokens)
        return account.feedback.has_collapsed

    def place_of(self, session: str, model: str | None, now: float) -> Binding | None:
        """Return where a session is bound."""
        return self.bindings.get(_bound_name(session, model), now=now)

    def check(self) -> None:
        """Raise `BrokenInvariant` naming the first numbered invariant that does not hold."""
        for account in self._accounts.values():
            account.check()
            of_it = [p for p in self._open if p.account is account]
            queued = sum(p.queued_tokens for p in of_it)
            _hold(1, account.num_own == len(of_it), str(account.source))
            _hold(2, account.queued_prefill_tokens == queued, str(account.source))
        self.bindings.check()

    def _bound(
        self, session: str, parent: str | None, model: str | None, now: float
    ) -> Binding | None:
        binding = self.bindings.get(_bound_name(session, model), now=now)
        if binding is None and parent is not None:
            binding = self.bindings.get(_bound_name(parent, model), now=now)
        return binding

    def _survival_of(self, binding: Binding | None, last: SourceId | None, now: float) -> float:
        if self._survival is None or binding is None or last is None:
            return 1.0
        return self._survival(last, max(0.0, now - binding.used_s))

    def _stays(self, placement: Placement, here: SourceAccount, model: str | None) -> bool:
        """See at a glance that a session stays where it is, and fill that in; else leave it open."""
        if self._keeps is None or placement.belief is not None or placement.tried:
            return False
        serving, now = self.serving(model), placement.placed_s
        if not here.is_alive or here.drain_start_s is not None or here not in serving:
            return False
        load = here.smoothed_requests(now) / here.weight
        if load > self._keeps.bounds.load_floor_requests:
            living = [a for a in serving if a.is_alive and a.drain_start_s is None]
            loads, weights = [a.smoothed_requests(now) for a in living], [a.weight for a in living]
            if load > self._keeps.bounds.limit(loads, weights):
                return False
        hit, share = placement.held_at_last(), here.feedback.delivered_share
        placement.source, placement.account = here.source, here
        placement.reason = "kept"
        placement.predicted_tokens = expected_tokens(hit, share, placement.survival)
        placement.believed_tokens = expected_tokens(hit, 1.0, placement.survival)
        return True

    def _decide(self, placement: Placement) -> None:
        """Ask the policy, and fill its decision in; what is believed now may be otherwise later."""
        decision = placement.decision
        placement.reason, placement.source = decision.reason, decision.source
        placement.predicted_tokens = decision.predicted_tokens
        if decision.source is None:
            return
        placement.account = self._accounts[decision.source]
        chosen = next(c for c in placement.candidates if c.source == decision.source)
        _, credit = placement.believed(chosen.source)
        placement.believed_tokens = expected_tokens(chosen.hit, credit, chosen.survival)
        placement.belief = None  # the candidates have what it said

    def _take(self, placement: Placement, model: str | None) -> None:
        account, now = placement.account, placement.placed_s
        if account is None:
            return
        prompt_tokens = placement.prompt_tokens
        queued = max(0, prompt_tokens - placement.predicted_tokens)
        placement.queued_tokens = queued
        placement.ahead_tokens = account.queued_prefill_tokens + queued
        placement.num_ahead = account.num_running
        placement.is_open = True
        self._open.add(placement)
        account.take(queued, now=now)
        name, source = _bound_name(placement.session, model), account.source
        self.bindings.bind(name, source.replica, source.rank, num_tokens=prompt_tokens, now=now)

    def _release(self, placement: Placement, now: float) -> None:
        account = placement.account
        if account is None or not placement.is_open:
            return
        placement.is_open = False
        self._open.discard(placement)
        account.release(placement.queued_tokens, now=now)
        placement.queued_tokens = 0


def _held_tokens(binding: Binding | None, here: SourceAccount | None) -> int:
    """Return what a session left at its last place, which may have lost it since."""
    if binding is None or here is None or binding.used_s < here.emptied_s:
        return 0
    return binding.num_tokens


def _bound_name(session: str, model: str | None) -> str:
    """One session id may be used with several models, each with blocks of its own."""
    return session if model is None else f"{session} {model}"


def _hold(number: int, holds: bool, what: str) -> None:
    if not holds:
        raise BrokenInvariant(f"dispatcher: invariant {number} does not hold: {what}")
