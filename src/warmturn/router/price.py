"""One price per candidate in milliseconds; the cheapest takes the request.

    price = queue     what is ahead of it: queued prefill and running requests
          + prefill   what has to be computed: the prompt less the expected hit
          + load      bringing the hit up from host and storage
          + moving    what leaving the session's place costs over its remaining turns
          + crowding  what a new session adds to a replica that holds more than its share

A session leaves a place that is alive and not overloaded only where another's price is clearly
lower: by the factor `move_margin`, and with the loads of its own place and of the others averaged
over some seconds. Learned rates and momentary queues differ by more than moving gains.

The expected hit is belief x trust x survival. Each tier is loaded only where that beats computing
it again. Whoever is beyond the load bound is not eligible, unless all are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from warmturn.router.bounds import DEFAULT_BOUNDS, Bounds, session_shares
from warmturn.router.decision import Decision, Priced, alive, decided
from warmturn.router.ranking import ranked
from warmturn.router.views import Candidate, RoutingRequest

__all__ = ["Price"]

_MS = 1000.0


@dataclass(frozen=True, slots=True)
class Price:
    """Rates are the candidate's own, learned from its times to the first token."""

    bounds: Bounds = DEFAULT_BOUNDS
    move_back_share: float = 0.25
    """Chance per remaining turn that a session which moved will be moved again, by the same noise
    of loads, and pay once more. A choice; a margin of 2 worked for agents elsewhere."""
    move_margin: float = 2.0
    """How many times dearer staying must be than moving, before a session moves."""
    most_moves: float = 2.0
    """Beyond this the remaining turns do not make moving dearer: a session must be able to leave."""
    name: ClassVar[str] = "price"
    wants_hits: ClassVar[bool] = True

    def choose(
        self, request: RoutingRequest, candidates: Sequence[Candidate], now: float
    ) -> Decision:
        """Return the cheapest; of equal ones the first in the session's ranking."""
        del now
        living = ranked(request.session, alive(candidates))  # equal prices: on all gateways alike
        overloaded = self.bounds.overloaded(living)
        home = next((c for c in living if c.source == request.last_source), None)
        crowding = self._crowding_ms(request, living)
        priced = [
            self._priced(request, candidate, home, crowding_ms)
            for candidate, crowding_ms in zip(living, crowding, strict=True)
        ]
        priced.sort(key=lambda entry: (entry.price,))
        priced = self._settled(priced, home)
        within = [p for p in priced if p.source not in overloaded]
        beyond = [p for p in priced if p.source in overloaded]
        refused = (
            [Priced(p.source, None, "overloaded", p.terms) for p in beyond] if within else beyond
        )
        return decided(self.name, request, candidates, [*within, *refused])

    def _priced(
        self,
        request: RoutingRequest,
        candidate: Candidate,
        home: Candidate | None,
        crowding_ms: float,
    ) -> Priced:
        prefill_ms, load_ms = prefill_and_load_ms(request, candidate)
        terms = {
            "queue_ms": queue_ms(candidate, is_smoothed=home is not None),
            "prefill_ms": prefill_ms,
            "load_ms": load_ms,
            "moving_ms": self._moving_ms(request, candidate, home),
            "crowding_ms": crowding_ms,
        }
        return Priced(candidate.source, sum(terms.values()), "ms", terms)

    def _settled(self, priced: list[Priced], home: Candidate | None) -> list[Priced]:
        """Put the session's own place first, unless the cheapest is cheaper by the margin."""
        own = next((p for p in priced if home is not None and p.source == home.source), None)
        if own is None or own.price is None or priced[0].price is None:
            return priced
        if own.price > self.move_margin * priced[0].price:
            return priced
        return [own, *(p for p in priced if p is not own)]

    def _moving_ms(
        self, request: RoutingRequest, candidate: Candidate, home: Candidate | None
    ) -> float:
        """Return what coming back costs: the prefill of what is held at home and not here.

        This turn's prefill is in `prefill_ms` already; this is the chance to pay it again.
        """
        if home is None or candidate.source == home.source:
            return 0.0
        there = sum(prefill_and_load_ms(request, home))
        here = sum(prefill_and_load_ms(request, candidate))
        moves = min(self.most_moves, self.move_back_share * max(0.0, request.turns_left))
        return moves * max(0.0, here - there)

    def _crowding_ms(self, request: RoutingRequest, candidates: Sequence[Candidate]) -> list[float]:
        """Return what a new session's later turns will wait for, where sessions pile up.

        A replica that holds twice its share of live sessions will serve turns twice as often as the
        mean: each later turn then meets one turn more than elsewhere. This is what replicates a
        shared prefix: without it, whoever computed it first would attract every session.
        """
        if not request.is_unplaced:
            return [0.0] * len(candidates)
        total = sum(c.load.session_tokens for c in candidates) + request.prompt_tokens
        costs = []
        for candidate, share in zip(candidates, session_shares(candidates), strict=True):
            fair = max(share * total, 1.0)
            excess = max(0.0, candidate.load.session_tokens / fair - 1.0)
            turn_ms = request.prompt_tokens * candidate.rates.s_per_token * _MS
            costs.append(excess * max(1.0, request.turns_left) * turn_ms)
        return costs


def queue_ms(candidate: Candidate, *, is_smoothed: bool = False) -> float:
    """Return what is ahead of a new request: its base time, queued tokens, running requests.

    Smoothed, a burst counts by as much of it as the mean of some seconds has: what a session that
    stays for several turns will meet.
    """
    load, rates = candidate.load, candidate.rates
    num_running, queued_tokens = float(load.num_running), float(load.queued_prefill_tokens)
    if is_smoothed:
        queued_tokens *= min(1.0, load.smoothed_requests / max(1.0, num_running))
        num_running = load.smoothed_requests
    tokens_s = queued_tokens * rates.s_per_token
    return (rates.base_s + tokens_s + num_running * rates.s_per_running) * _MS


def prefill_and_load_ms(request: RoutingRequest, candidate: Candidate) -> tuple[float, float]:
    """Return the expected time to compute what is not held, and to load what is held below."""
    share = min(1.0, max(0.0, candidate.trust * candidate.survival))
    hit, s_per_token = candidate.hit, candidate.rates.s_per_token
    computed = float(request.prompt_tokens) - share * hit.device_tokens
    load_s = 0.0
    tiers = (
        (hit.near_tokens - hit.device_tokens, candidate.host_tokens_per_s),
        (hit.any_tokens - hit.near_tokens, candidate.storage_tokens_per_s),
    )
    for tokens, tokens_per_s in tiers:
        if not tokens_per_s or 1 / tokens_per_s >= s_per_token:
            break  # computed again, and then whatever lies behind it has to be as well
        load_s += share * tokens / tokens_per_s
        computed -= share * tokens
    return computed * s_per_token * _MS, load_s * _MS
