"""Prometheus metrics of the gateway: counted by looking on, read at each scrape.

Counting is on the path of every request, so it is additions to plain dictionaries; families are made
from them when somebody scrapes. Names begin with `warmturn_`; docs/reference/gateway-metrics.md says
what each means. No label holds anything a client chose: models are those the gateway serves.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from warmturn.router import Placement

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
        self.counts: dict[str, dict[_Labels, int]] = {name: defaultdict(int) for name in _COUNTERS}
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
        placement, counts = turn.placement, self.counts
        if placement is None or placement.source is None:
            return
        counts["placements"][(placement.source.replica,)] += 1
        if len(turn.tried) > 1:
            return  # a retry: the session's move was counted with the first
        counts["session_sources"][(turn.session.source,)] += 1
        policy = (placement.policy,)
        if placement.reason != "new":
            counts["later_turns"][policy] += 1
            if placement.reason == "kept":
                counts["kept_turns"][policy] += 1
            else:
                counts["moves"][placement.policy, _why_moved(placement)] += 1
        self._count_shadow(placement)

    def first_byte(self, turn: Turn, now: float) -> None:
        """Measure from the arrival of the call: queueing in the gateway counts."""
        placement = turn.placement
        policy = placement.policy if placement is not None else "none"
        histogram = self._ttfb.get(policy)
        if histogram is None:
            histogram = self._ttfb[policy] = _Histogram(_TTFB_S)
        histogram.observe(now - turn.call.received_s)

    def failed(self, turn: Turn, why: str, now: float) -> None:
        """Count a try that failed before its first byte."""
        del now
        source = turn.source
        replica = source.replica if source is not None else "none"
        self.counts["retries"][replica, why] += 1
        if turn.sent_s is not None and why != "connect":
            self.counts["reexecutions"][(replica,)] += 1

    def ended(self, turn: Turn, outcome: Outcome, now: float) -> None:
        """Count the end of a turn, and what its answer said."""
        del now
        counts = self.counts
        counts["turns"][turn.call.api, outcome.ending] += 1
        counts["answers"][(str(outcome.status),)] += 1
        source, usage, placement = turn.source, outcome.usage, turn.placement
        if source is None or usage is None or placement is None:
            return
        replica = (source.replica,)
        counts["prompt_tokens"][replica] += usage.prompt_tokens or 0
        counts["completion_tokens"][replica] += usage.completion_tokens or 0
        if usage.cached_tokens is None:
            counts["silent_answers"][replica] += 1
        else:
            counts["predicted_cached_tokens"][replica] += placement.predicted_tokens
            counts["delivered_cached_tokens"][replica] += usage.cached_tokens

    def total(self, name: str) -> int:
        """Return one counter over all its labels."""
        return sum(self.counts[name].values())

    def shadow_report(self) -> list[dict[str, Any]]:
        """Return what shadow policies would have done so far, beside what was done.

        Judged on the same views: had one of them been in charge, loads and caches would have
        become different ones.
        """
        counts = self.counts
        later, kept = self.total("later_turns"), self.total("kept_turns")
        found = []
        for (policy,), tokens in counts["shadow_predicted_tokens"].items():
            agreed = counts["shadow_decisions"][policy, "yes"]
            differed = counts["shadow_decisions"][policy, "no"]
            chosen_tokens = counts["chosen_predicted_tokens"][(policy,)]
            found.append(
                {
                    "policy": policy,
                    "num_decisions": agreed + differed,
                    "num_agreed": agreed,
                    "num_later_turns": later,
                    "num_kept": kept,
                    "num_kept_by_shadow": counts["shadow_kept_turns"][(policy,)],
                    "predicted_tokens": chosen_tokens,
                    "predicted_tokens_by_shadow": tokens,
                    "gained_tokens": tokens - chosen_tokens,
                }
            )
        return found

    def _count_shadow(self, placement: Placement) -> None:
        shadow = placement.shadow
        if shadow is None:
            return
        counts, policy = self.counts, (shadow.policy,)
        agrees = "yes" if shadow.source == placement.source else "no"
        counts["shadow_decisions"][shadow.policy, agrees] += 1
        counts["shadow_kept_turns"][policy] += shadow.reason == "kept"
        counts["shadow_predicted_tokens"][policy] += shadow.predicted_tokens
        counts["chosen_predicted_tokens"][policy] += placement.predicted_tokens

    def _families(self) -> Iterator[Metric]:
        for name, (meaning, labels) in _COUNTERS.items():
            family = CounterMetricFamily(f"warmturn_{name}", meaning, labels=labels)
            for values, count in list(self.counts[name].items()):
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
