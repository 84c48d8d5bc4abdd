"""Prometheus metrics of the gateway: counted by looking on, read at each scrape.

Counting is on the path of every request, so it is additions to plain dictionaries; families are made
from them when somebody scrapes. Names begin with `warmturn_`; docs/reference/gateway-metrics.md says
what each means. No label holds anything a client chose: models are those the gateway serves.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from warmturn.gateway.turns import Outcome, Turn
from warmturn.router import Decision, Placement

__all__ = ["GatewayMetrics", "Gauge", "Gauges"]

_TTFB_S = (
    *(0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56),
    *(5.12, 10.24, 20.48, 40.96, 81.92),
)
"""Doubling: TTFT is compared by ratios, and cached turns lie two orders below cold ones."""

Gauge: TypeAlias = tuple[str, str, Mapping[str, str], float]
"""Name, meaning, labels, value."""
Gauges: TypeAlias = Callable[[], Iterable[Gauge]]

_Labels: TypeAlias = tuple[str, ...]
_COUNTERS: dict[str, tuple[str, _Labels]] = {
    "turns": ("Calls that are over.", ("api", "ending")),
    "answers": ("Answers that clients got.", ("status",)),
    "later_turns": ("Turns whose session had a place before.", ("policy",)),
    "kept_turns": ("Later turns sent to their previous replica.", ("policy",)),
    "moves": ("Later turns sent elsewhere, by why the previous one was left.", ("policy", "why")),
    "placements": ("Calls sent to a replica, retries included.", ("replica",)),
    "prompt_tokens": ("Prompt tokens, as answers count them.", ("replica",)),
    "completion_tokens": ("Generated tokens, as answers count them.", ("replica",)),
    "predicted_cached_tokens": ("Cached tokens expected, of answers that tell.", ("replica",)),
    "delivered_cached_tokens": ("Cached tokens that those answers report.", ("replica",)),
    "silent_answers": ("Complete answers that report no cached tokens.", ("replica",)),
    "retries": ("Tries that failed before the first byte.", ("replica", "why")),
    "reexecutions": ("Of them, those that were sent whole: they may have run twice.", ("replica",)),
    "session_sources": ("Calls by what named their session.", ("source",)),
    "shadow_decisions": ("Decisions of the shadow policy.", ("policy", "agrees")),
    "shadow_kept_turns": ("Later turns it would have kept.", ("policy",)),
    "shadow_predicted_tokens": ("Cached tokens it expected at its choice.", ("policy",)),
    "chosen_predicted_tokens": ("The same at the one chosen, of those decisions.", ("policy",)),
}


class GatewayMetrics:
    """A `TurnObserver` that counts, and the registry that shows it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._places: dict[tuple[str, str, str], int] = {}  # by policy, reason, session source
        self._ends: dict[tuple[str, str, int], int] = {}  # by API, ending, status
        self._replicas: dict[str, _OfReplica] = {}
        self._moves: defaultdict[_Labels, int] = defaultdict(int)
        self._retries: defaultdict[_Labels, int] = defaultdict(int)
        self._reexecutions: defaultdict[_Labels, int] = defaultdict(int)
        self._shadows: dict[str, _OfShadow] = {}
        self._ttfb: dict[str, _Histogram] = {}
        self._gauges: list[Gauges] = []
        self._refusals: list[Callable[[], Mapping[int, int]]] = []
        self.registry.register(_Families(self._families))

    def watch(self, gauges: Gauges) -> None:
        """Ask for these at each scrape."""
        self._gauges.append(gauges)

    def watch_refusals(self, refusals: Callable[[], Mapping[int, int]]) -> None:
        """Add a part's own count of refusals by status."""
        self._refusals.append(refusals)

    def placed(self, turn: Turn, now: float) -> None:
        """Count where it goes and what that means to its session."""
        del now
        placement = turn.placement
        if placement is None or placement.source is None:
            return
        self._of(placement.source.replica).placements += 1
        if len(turn.tried) > 1:
            return  # a retry: the session's move was counted with the first
        policy, reason, source = placement.policy, placement.reason, turn.session.source
        self._places[policy, reason, source] = self._places.get((policy, reason, source), 0) + 1
        if reason == "moved":
            self._moves[policy, _why_moved(placement)] += 1
        if placement.shadow is not None:
            self._count_shadow(placement, placement.shadow)

    def first_byte(self, turn: Turn, now: float) -> None:
        """Measure from the arrival of the call: queueing in the gateway counts."""
        policy = turn.placement.policy if turn.placement is not None else "none"
        histogram = self._ttfb.get(policy)
        if histogram is None:
            histogram = self._ttfb[policy] = _Histogram(_TTFB_S)
        histogram.observe(now - turn.call.received_s)

    def failed(self, turn: Turn, why: str, now: float) -> None:
        """Count a try that failed before its first byte."""
        del now
        replica = "none" if turn.source is None else turn.source.replica
        self._retries[replica, why] += 1
        if turn.sent_s is not None and why != "connect":
            self._reexecutions[replica,] += 1

    def ended(self, turn: Turn, outcome: Outcome, now: float) -> None:
        """Count the end of a turn, and what its answer said."""
        del now
        end = turn.call.api, outcome.ending, outcome.status
        self._ends[end] = self._ends.get(end, 0) + 1
        placement, usage = turn.placement, outcome.usage
        if usage is None or placement is None or placement.source is None:
            return
        of = self._of(placement.source.replica)
        of.prompt_tokens += usage.prompt_tokens or 0
        of.completion_tokens += usage.completion_tokens or 0
        if usage.cached_tokens is None:
            of.silent_answers += 1
        else:
            of.predicted_cached_tokens += placement.predicted_tokens
            of.delivered_cached_tokens += usage.cached_tokens

    @property
    def counts(self) -> dict[str, dict[_Labels, int]]:
        """All counters, by name and labels; added up from what was counted."""
        counts: dict[str, dict[_Labels, int]] = {name: defaultdict(int) for name in _COUNTERS}
        for (policy, reason, source), count in list(self._places.items()):
            counts["session_sources"][(source,)] += count
            if reason != "new":
                counts["later_turns"][(policy,)] += count
            if reason == "kept":
                counts["kept_turns"][(policy,)] += count
        for (api, ending, status), count in list(self._ends.items()):
            counts["turns"][api, ending] += count
            counts["answers"][(str(status),)] += count
        for replica, of_replica in list(self._replicas.items()):
            for name in _OfReplica.__slots__:
                counts[name][(replica,)] = getattr(of_replica, name)
        for policy, shadow in list(self._shadows.items()):
            counts["shadow_decisions"][policy, "yes"] = shadow.num_agreed
            counts["shadow_decisions"][policy, "no"] = shadow.num_decisions - shadow.num_agreed
            counts["shadow_kept_turns"][(policy,)] = shadow.num_kept
            counts["shadow_predicted_tokens"][(policy,)] = shadow.predicted_tokens
            counts["chosen_predicted_tokens"][(policy,)] = shadow.chosen_tokens
        counts["moves"].update(self._moves)
        counts["retries"].update(self._retries)
        counts["reexecutions"].update(self._reexecutions)
        return counts

    def total(self, name: str) -> int:
        """Return one counter over all its labels."""
        return sum(self.counts[name].values())

    def shadow_report(self) -> list[dict[str, Any]]:
        """Return what shadow policies would have done so far, beside what was done.

        Judged on the same views: had one of them been in charge, loads and caches would have
        become different ones.
        """
        later, kept = self.total("later_turns"), self.total("kept_turns")
        return [
            {
                "policy": policy,
                "num_decisions": shadow.num_decisions,
                "num_agreed": shadow.num_agreed,
                "num_later_turns": later,
                "num_kept": kept,
                "num_kept_by_shadow": shadow.num_kept,
                "predicted_tokens": shadow.chosen_tokens,
                "predicted_tokens_by_shadow": shadow.predicted_tokens,
                "gained_tokens": shadow.predicted_tokens - shadow.chosen_tokens,
            }
            for policy, shadow in self._shadows.items()
        ]

    def _of(self, replica: str) -> "_OfReplica":
        found = self._replicas.get(replica)
        if found is None:
            found = self._replicas[replica] = _OfReplica()
        return found

    def _count_shadow(self, placement: Placement, shadow: Decision) -> None:
        counts = self._shadows.setdefault(shadow.policy, _OfShadow())
        counts.num_decisions += 1
        counts.num_agreed += shadow.source == placement.source
        counts.num_kept += shadow.reason == "kept"
        counts.predicted_tokens += shadow.predicted_tokens
        counts.chosen_tokens += placement.predicted_tokens

    def _families(self) -> Iterator[Metric]:
        counts = self.counts
        for name, (meaning, labels) in _COUNTERS.items():
            family = CounterMetricFamily(f"warmturn_{name}", meaning, labels=labels)
            for values, count in counts[name].items():
                family.add_metric(values, count)
            yield family
        yield self._refusal_family()
        yield self._share_family()
        meaning = "From a call's arrival to the first byte of its answer."
        ttfb = HistogramMetricFamily(
            "warmturn_time_to_first_byte_seconds", meaning, labels=("policy",)
        )
        for policy, histogram in list(self._ttfb.items()):
            ttfb.add_metric((policy,), histogram.buckets(), sum_value=histogram.sum)
        yield ttfb
        yield from _gauge_families(gauge for gauges in self._gauges for gauge in gauges())

    def _refusal_family(self) -> Metric:
        totals: dict[int, int] = defaultdict(int)
        for refusals in self._refusals:
            for status, count in refusals().items():
                totals[status] += count
        meaning = "Requests that the gateway itself answered with an error."
        family = CounterMetricFamily("warmturn_refusals", meaning, labels=("status",))
        for status, count in sorted(totals.items()):
            family.add_metric((str(status),), count)
        return family

    def _share_family(self) -> Metric:
        meaning = "Share of later turns that went to their previous replica; absent before any."
        family = GaugeMetricFamily("warmturn_kept_turns_share", meaning)
        if later := self.total("later_turns"):
            family.add_metric((), self.total("kept_turns") / later)
        return family


@dataclass(slots=True)
class _OfReplica:
    """Counters with the label `replica` alone, under their names."""

    placements: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    silent_answers: int = 0
    predicted_cached_tokens: int = 0
    delivered_cached_tokens: int = 0


@dataclass(slots=True)
class _OfShadow:
    num_decisions: int = 0
    num_agreed: int = 0
    num_kept: int = 0
    predicted_tokens: int = 0
    chosen_tokens: int = 0


class _Histogram:
    """Counts per bucket; `observe` is one bisection."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        total, found = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class _Families(Collector):
    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._make = families

    def collect(self) -> Iterable[Metric]:
        return self._make()

    def describe(self) -> Iterable[Metric]:
        """Registering asks for nothing yet."""
        return ()


def _gauge_families(gauges: Iterable[Gauge]) -> Iterator[Metric]:
    """A name that ends in `_total` is a counter that somebody else keeps."""
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
    for name, meaning, labels, value in gauges:
        family = families.get(name)
        if family is None:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = families[name] = kind(f"warmturn_{name}", meaning, labels=tuple(labels))
        family.add_metric(tuple(labels.values()), value)
    yield from families.values()


def _why_moved(placement: Placement) -> str:
    """Return what spoke against the previous replica: `not alive`, `overloaded`, or `dearer`."""
    for entry in placement.decision.candidates:
        if entry.source == placement.last_source:
            return entry.reason if entry.reason in ("not alive", "overloaded") else "dearer"
    return "gone"
