"""Decides for the data path: whose call, where to, and what its outcome teaches.

    admit   model, limit, tenant, salt, session; prompt in tokens where the policy looks at hits
    place   books and beliefs to the policy; reasons are made when somebody reads them
    ended   loads given back; rates, hits and session lengths learned

Nothing here sleeps or opens a socket; time comes with each call.
"""

import logging
import traceback
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from warmturn.fleet import SourceId
from warmturn.gateway.admission import Caller, Callers, has_answer
from warmturn.gateway.event_feed import EventFeed
from warmturn.gateway.metrics_reading import ReplicaMetrics
from warmturn.gateway.prompt_beliefs import PromptBeliefs, ToldPrompt, warm_up
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.replica_status import ReplicaStatus, SessionStatus, replica_status
from warmturn.gateway.served_models import ServedModel, ServedModels
from warmturn.gateway.turns import Api, Call, Outcome, Refused, Turn, TurnObserver
from warmturn.router import Affinity, Dispatcher, Placement, Policy, SourceAccount, Survival
from warmturn.session.bindings import Bindings
from warmturn.session.tenant import SaltRule
from warmturn.types import ReplicaId

__all__ = ["AdmissionLimit", "Explanation", "GatewaySteering"]

_log = logging.getLogger(__name__)

DEFAULT_DRAIN_S = 60.0
"""A chat's usual think time: most sessions then move at their next turn, not all at once."""
_BYTES_PER_TOKEN = 4.3
"""Of English chats and code in JSON, before answers say better."""
_PROMPTED = frozenset({Api.CHAT, Api.COMPLETIONS, Api.RESPONSES, Api.MESSAGES})
"""What leaves blocks that the next turn can use."""
_MOST_BYTES_PER_TOKEN = 100.0  # whatever a replica says of a prompt's length
_RATIO_WEIGHT = 0.05
"""Of one answer in the learned bytes per token: about the last forty count."""


@dataclass(frozen=True, slots=True)
class AdmissionLimit:
    """How much may be in flight at once; beyond it a client is told when to come again."""

    max_running: int | None = None
    max_running_per_replica: int | None = None
    """Times the replicas that are up."""
    retry_after_s: float = 1.0
    """At least; else about the time one answer takes."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would be done with a call now, and why. Asking changes nothing."""

    turn: Turn
    placement: Placement
    is_counted: bool
    """The prompt's tokens were counted, not estimated from its bytes."""


@dataclass(slots=True)
class SteeredTurn(Turn):
    """A turn with what only the steering looks at."""

    routed_model: str | None = None
    """As replicas call it; None: whoever is there."""
    told: ToldPrompt | None = None
    """The prompt in blocks, where the policy looks at hits."""


@dataclass(slots=True)
class _Life:
    """What is known of a replica's process."""

    start_s: float | None = None
    """Unix time."""
    seen_s: float = float("-inf")
    """When `start_s` was read."""
    dead_since_s: float | None = None
    why_dead: str | None = None


class GatewaySteering:
    """Implements `turns.Steering` over any number of replicas and models."""

    def __init__(
        self,
        policy: Policy,
        *,
        shadow: Policy | None = None,
        models: Sequence[ServedModel] = (),
        salts: SaltRule | None = None,
        session_header: str | None = None,
        limit: AdmissionLimit | None = None,
        observers: Sequence[TurnObserver] = (),
        bindings: Bindings | None = None,
        survival: Survival | None = None,
    ) -> None:
        """`models` adds aliases and tokenizers; without it any name that a replica serves will do."""
        self._limit = limit or AdmissionLimit()
        self.dispatcher = Dispatcher(
            policy,
            shadow=shadow,
            bindings=bindings,
            survival=survival,
            max_running=self._limit.max_running_per_replica,
        )
        self.refusals: Counter[int] = Counter()
        """Calls refused here, by status."""
        self.num_routing_errors = 0
        """Decisions that failed and were made by affinity instead."""
        self._models = ServedModels(models)
        self.prompts = PromptBeliefs(self._models)
        self._callers = Callers(salts or SaltRule(), session_header=session_header)
        self._observers = tuple(observers)
        self._specs: dict[ReplicaId, ReplicaSpec] = {}
        self._lives: dict[ReplicaId, _Life] = {}
        self._num_admitted = 0
        self._bytes_per_token = _BYTES_PER_TOKEN
        self._headers: dict[tuple[SourceAccount, str], bytes] = {}
        self._fallback = Affinity()
        if self.dispatcher.wants_hits:
            warm_up()

    # --- the data path's questions ---------------------------------------------------------------

    def admit(self, call: Call, now: float) -> Turn | Awaitable[Turn]:
        """Say whose call it is and with which salt. See `turns.Steering`."""
        del now
        routed = self._routed_model(call)
        self._refuse_over_limit(routed)
        turn = self._turn(call, routed, self._caller(call))
        self._num_admitted += 1
        if not self.dispatcher.wants_hits or call.api not in _PROMPTED:
            return turn
        told = self._told(turn)
        if isinstance(told, Awaitable):
            return self._once_told(turn, told)
        return _with_prompt(turn, told)

    def place(self, turn: Turn, now: float) -> SourceId:
        """Choose among the sources not yet tried. See `turns.Steering`."""
        placement = turn.placement = self._placed(turn, now)
        source = placement.source
        if source is None:
            self._refuse_without_replica(turn)
        turn.tried.append(source)
        for observer in self._observers:
            observer.placed(turn, now)
        return source

    def response_headers(self, turn: Turn) -> bytes:
        """Return the lines that say where the turn went and what was expected there."""
        placement = turn.placement
        if placement is None or placement.account is None:
            return b"x-warmturn-session-source: %s\r\n" % turn.session.source.encode()
        key = placement.account, turn.session.source
        lines = self._headers.get(key)
        if lines is None:
            replica = key[0].source.replica
            lines = self._headers[key] = (
                f"x-warmturn-replica: {replica}\r\nx-warmturn-session-source: {key[1]}\r\n"
                "x-warmturn-predicted-cached-tokens: "
            ).encode()
        return b"%b%d\r\n" % (lines, placement.predicted_tokens)

    def sent(self, turn: Turn, now: float) -> None:
        """The request is on its way."""
        turn.sent_s = now
        if turn.placement is None:
            return
        turn.placement.sent_s = now
        told, source = _told_of(turn), turn.placement.source
        if told is not None and source is not None:
            self.prompts.sent(told, source, _routed(turn), now)

    def first_byte(self, turn: Turn, now: float) -> None:
        """Prefill is done."""
        turn.first_byte_s = now
        if turn.placement is not None:
            is_streamed = turn.call.fields.stream is True
            self.dispatcher.first_byte(turn.placement, now, is_streamed=is_streamed)
        self._prefilled(turn, now)
        for observer in self._observers:
            observer.first_byte(turn, now)

    def failed(self, turn: Turn, why: str, now: float) -> bool:
        """A try failed before its first byte; another one makes sense where anybody is left."""
        if turn.placement is not None:
            self.dispatcher.failed(turn.placement, now)
        self._prefilled(turn, now)
        for observer in self._observers:
            observer.failed(turn, why, now)
        serving = self.dispatcher.serving(_routed(turn))
        return any(a.is_alive and a.source not in turn.tried for a in serving)

    def ended(self, turn: Turn, outcome: Outcome, now: float) -> None:
        """Give back what the turn occupied, and learn from its answer."""
        if turn.placement is not None:
            self._learn(turn, turn.placement, outcome, now)
        self._prefilled(turn, now)
        for observer in self._observers:
            observer.ended(turn, outcome, now)

    # --- the control side's ------------------------------------------------------------------------

    def add_observer(self, observer: TurnObserver) -> None:
        """Let one more look on."""
        self._observers = (*self._observers, observer)

    def add_replica(self, spec: ReplicaSpec, now: float) -> None:
        """Take a replica in. Raises `InvalidInput` where its name is taken."""
        for rank in range(spec.num_ranks):
            self.dispatcher.add_source(
                SourceId(spec.replica, rank),
                models=spec.models,
                weight=spec.weight,
                capacity_tokens=spec.capacity_tokens,
                now=now,
            )
        self._specs[spec.replica] = spec
        self._lives[spec.replica] = _Life()
        self.prompts.add_replica(spec)

    def event_feed(self, replica: ReplicaId) -> EventFeed | None:
        """Return a feed for a replica that publishes; it is to be started, and closed before it goes.

        Raises `InvalidInput` for an endpoint that has no place for all ranks.
        """
        spec = self._specs[replica]
        consumers = self.prompts.consumers(replica)
        if spec.events_endpoint is None or not consumers:
            return None
        feed = EventFeed(
            replica,
            consumers[0],
            endpoint=spec.events_endpoint,
            replay_endpoint=spec.replay_endpoint,
            num_ranks=spec.num_ranks,
        )
        self.prompts.ask_replays_through(replica, feed.ask)
        return feed

    def remove_replica(self, replica: ReplicaId) -> None:
        """Forget a replica; its sessions are placed anew. Unknown ones are no error."""
        self.dispatcher.remove_replica(replica)
        self._specs.pop(replica, None)
        self._lives.pop(replica, None)
        self.prompts.remove_replica(replica)
        self._headers = {}

    def set_alive(self, replica: ReplicaId, is_alive: bool, why: str, now: float) -> None:
        """Say whether a replica can be sent anything.

        One that comes back counts as restarted, and what it held as lost, unless its metrics have
        been looked at since it was gone and tell of the same process.
        """
        life = self._lives.get(replica)
        if life is None:
            return
        for account in self.dispatcher.of_replica(replica):
            account.set_alive(is_alive=is_alive)
        if is_alive and life.dead_since_s is not None and life.seen_s < life.dead_since_s:
            self._emptied(replica, now)
        if not is_alive and life.dead_since_s is None:
            life.dead_since_s = now
        life.dead_since_s = None if is_alive else life.dead_since_s
        life.why_dead = None if is_alive else why

    def set_draining(
        self,
        replica: ReplicaId,
        is_draining: bool,
        now: float,
        *,
        over_s: float = DEFAULT_DRAIN_S,
    ) -> None:
        """Let a replica hand its sessions over within `over_s` seconds, or take it back."""
        for account in self.dispatcher.of_replica(replica):
            if is_draining:
                account.drain(over_s=over_s, now=now)
            else:
                account.undrain()

    def observe_metrics(self, replica: ReplicaId, metrics: ReplicaMetrics, now: float) -> None:
        """Take a look at a replica's `/metrics` into account."""
        spec = self._specs.get(replica)
        if spec is None:
            return
        self.prompts.observe_size(spec, metrics.block_size, metrics.capacity_tokens)
        if metrics.start_s is not None:
            self._observe_start(replica, metrics.start_s, now)
        accounts = list(self.dispatcher.of_replica(replica))
        for account in accounts:
            if spec.capacity_tokens is None and metrics.capacity_tokens is not None:
                account.set_capacity(metrics.capacity_tokens)
            if metrics.num_running is not None:
                num = metrics.num_running + (metrics.num_waiting or 0)
                account.observe_running(-(-num // len(accounts)), now=now)

    def explain(self, call: Call, now: float) -> Explanation:
        """Say what would be done with a call now. Raises `Refused` as `admit` does."""
        routed = self._routed_model(call)
        turn = self._turn(call, routed, self._caller(call))
        if self.dispatcher.wants_hits and call.api in _PROMPTED:
            named = turn.session.key, turn.salt, routed
            told = self.prompts.peek(call, *named, num_tokens=turn.prompt_tokens)
            _with_prompt(turn, told)
        placement = self._dispatched(turn, now, is_trial=True)
        is_counted = turn.told is not None and not turn.told.blocks.is_chunked
        return Explanation(turn, placement, is_counted=is_counted)

    def session(self, key: str, now: float) -> SessionStatus | None:
        """Return where a session is bound; None where it is not known, or no longer."""
        for model in (None, *sorted(self.served_models())):
            binding = self.dispatcher.place_of(key, model, now)
            if binding is not None:
                source = SourceId(binding.replica, binding.rank)
                idle_s = now - binding.used_s
                return SessionStatus(key, model, source, binding.num_tokens, idle_s)
        return None

    def replicas(self, now: float) -> list[ReplicaStatus]:
        """Return the state of every source, in the order they were added."""
        return [
            replica_status(
                account,
                session_tokens=self.dispatcher.bindings.session_tokens(
                    account.source.replica, account.source.rank
                ),
                why_dead=self._lives[account.source.replica].why_dead,
                beliefs=self.prompts.beliefs_of(account.source.replica),
                now=now,
            )
            for account in self.dispatcher.accounts
        ]

    def served_models(self) -> frozenset[str]:
        """Return the names that clients may ask for, aliases included."""
        served = {name for spec in self._specs.values() for name in spec.models}
        return frozenset(served | set(self._models.names))

    # --- admission -----------------------------------------------------------------------------------

    def _routed_model(self, call: Call) -> str | None:
        """Return the model as replicas call it; None: it does not matter, or nobody can tell."""
        name = call.fields.model
        if name is None:
            return self._only_model()
        known = self._models.named(name)
        routed = name if known is None else known.name
        if not self.dispatcher.serving(routed) and self.dispatcher.accounts:
            there = ", ".join(sorted(self.served_models())) or "none"
            self._refuse(
                404,
                f"model {name!r} was asked for; there are: {there}",
                code="model_not_found",
                param="model",
            )
        return routed

    def _only_model(self) -> str | None:
        names = {name for spec in self._specs.values() for name in spec.models}
        return next(iter(names)) if len(names) == 1 else None

    def _refuse_over_limit(self, routed: str | None) -> None:
        most = self._limit.max_running
        is_over = most is not None and self.dispatcher.num_open >= most
        if is_over or self.dispatcher.is_full(routed):
            self._refuse(
                429,
                f"{self.dispatcher.num_open} requests are in flight, which is the limit; "
                "come again after the time in Retry-After",
                code="too_many_requests",
                retry_after_s=max(self._limit.retry_after_s, self.dispatcher.retry_after_s()),
            )

    def _caller(self, call: Call) -> Caller:
        try:
            return self._callers.of(call)
        except Refused as error:
            self.refusals[error.status] += 1
            raise

    def _turn(self, call: Call, routed: str | None, caller: Caller) -> SteeredTurn:
        return SteeredTurn(
            call,
            caller.session,
            routed if routed != call.fields.model and call.fields.model is not None else None,
            caller.salt,
            1 + int(len(call.body) / self._bytes_per_token),
            self._num_admitted,
            not has_answer(call),
            routed_model=routed,
        )

    def _refuse(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> NoReturn:
        self.refusals[status] += 1
        raise Refused(status, message, code=code, param=param, retry_after_s=retry_after_s)

    def _told(self, turn: SteeredTurn) -> ToldPrompt | Awaitable[ToldPrompt] | None:
        """Tell the prompt in blocks; where that fails, affinity goes on without."""
        try:
            return self.prompts.tell(
                turn.call,
                turn.session.key,
                turn.salt,
                turn.routed_model,
                num_tokens=turn.prompt_tokens,
            )
        except Exception as error:  # noqa: BLE001 - as in `_placed`
            self._note_routing_error("a prompt could not be told in blocks", error)
            return None

    async def _once_told(self, turn: SteeredTurn, told: Awaitable[ToldPrompt]) -> Turn:
        try:
            return _with_prompt(turn, await told)
        except Exception as error:  # noqa: BLE001 - as in `_placed`
            self._note_routing_error("a prompt could not be told in blocks", error)
            return turn

    def _note_routing_error(self, what: str, error: Exception) -> None:
        """Count a defect of ours, and log where the first one is; its text might hold a prompt."""
        self.num_routing_errors += 1
        if self.num_routing_errors == 1:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            _log.error(
                "%s: %s at %s:%s; affinity goes on, further ones are only counted",
                what,
                type(error).__name__,
                frame.filename,
                frame.lineno,
            )

    # --- placing and learning ------------------------------------------------------------------------

    def _placed(self, turn: Turn, now: float) -> Placement:
        """Ask the policy; where that fails, affinity goes on."""
        try:
            return self._dispatched(turn, now)
        except Exception as error:  # noqa: BLE001 - the request has to go somewhere
            self._note_routing_error("a decision failed", error)
            return self._dispatched(turn, now, policy=self._fallback)

    def _dispatched(
        self, turn: Turn, now: float, *, policy: Policy | None = None, is_trial: bool = False
    ) -> Placement:
        told = _told_of(turn)
        return self.dispatcher.place(
            turn.session.key,
            prompt_tokens=turn.prompt_tokens,
            number=turn.number,
            model=_routed(turn),
            parent=turn.session.parent_key,
            is_first_turn=turn.is_first,
            belief=self.prompts.hits(told, now) if told is not None and policy is None else None,
            tried=turn.tried,
            policy=policy,
            is_trial=is_trial,
            now=now,
        )

    def _prefilled(self, turn: Turn, now: float) -> None:
        told = _told_of(turn)
        if told is not None:
            self.prompts.prefilled(told, now)

    def _observe_start(self, replica: ReplicaId, start_s: float, now: float) -> None:
        life = self._lives[replica]
        if life.start_s is not None and start_s > life.start_s:
            num_ranks = self._specs[replica].num_ranks
            self.prompts.forget(replica, num_ranks)
            for account in self.dispatcher.of_replica(replica):
                account.emptied(now=now)
        life.start_s, life.seen_s = start_s, now
        self.prompts.observe_start(replica, start_s)

    def _emptied(self, replica: ReplicaId, now: float) -> None:
        self.prompts.restarted(replica, self._specs[replica].num_ranks)
        for account in self.dispatcher.of_replica(replica):
            account.emptied(now=now)

    def _refuse_without_replica(self, turn: Turn) -> NoReturn:
        routed, num_tried = _routed(turn), len(turn.tried)
        what = "any model" if routed is None else f"model {routed!r}"
        tried = f", {num_tried} were tried" if num_tried else ""
        self._refuse(
            503,
            f"no replica for {what} can take the request{tried}; "
            "try again, and see the gateway's /warmturn/replicas",
            code="no_replica",
            retry_after_s=self._limit.retry_after_s,
        )

    def _learn(self, turn: Turn, placement: Placement, outcome: Outcome, now: float) -> None:
        usage = outcome.usage
        cached = prompt = num_tokens = None
        if usage is not None:
            cached, prompt = usage.cached_tokens, usage.prompt_tokens
            num_tokens = None if prompt is None else prompt + (usage.completion_tokens or 0)
        if prompt:
            ratio = min(_MOST_BYTES_PER_TOKEN, len(turn.call.body) / prompt)
            self._bytes_per_token += _RATIO_WEIGHT * (ratio - self._bytes_per_token)
        has_collapsed = self.dispatcher.ended(
            placement, now, model=_routed(turn), cached_tokens=cached, num_tokens=num_tokens
        )
        told, account = _told_of(turn), placement.account
        if told is not None and account is not None:
            self.prompts.answered(
                told,
                account.source,
                _routed(turn),
                believed_tokens=placement.believed_tokens,
                cached_tokens=cached,
                reply=outcome.reply,
                now=now,
            )
            if has_collapsed:
                self.prompts.collapsed(account.source)
                account.forget_hits()
        if outcome.response_id is not None and turn.call.api is Api.RESPONSES:
            key = turn.session.key
            self._callers.remember_response(turn.salt, outcome.response_id, key)


def _routed(turn: Turn) -> str | None:
    return turn.routed_model if isinstance(turn, SteeredTurn) else turn.model


def _told_of(turn: Turn) -> ToldPrompt | None:
    return turn.told if isinstance(turn, SteeredTurn) else None


def _with_prompt(turn: SteeredTurn, told: ToldPrompt | None) -> SteeredTurn:
    if told is not None:
        turn.told, turn.chain = told, next(iter(told.blocks.chains.values()), None)
        turn.prompt_tokens = max(1, told.blocks.num_tokens)
        turn.wants_reply = told.asked is not None
    return turn
