"""What the tiers did, for Prometheus: read from the manager's counts when somebody looks."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from warmturn.cache.tier_stats import TierStats
from warmturn.cache.tiers import TierManager

__all__ = ["TierCollector"]

_LABELS = ("model_name", "engine")


class TierCollector(Collector):
    """Counters of one tier manager; vLLM's names where it has them, with the tier as a label more."""

    def __init__(self, tiers: TierManager, label_values: tuple[str, ...]) -> None:
        self._tiers = tiers
        self._label_values = label_values

    def collect(self) -> Iterable[Metric]:
        """Give all families."""
        stats = self._tiers.stats
        yield from self._traffic(stats)
        yield self._family("vllm:kv_offload_stores_skipped", stats.skipped, ("tier", "reason"))
        yield self._family("warmturn:tier_problems", stats.problems, ("tier", "outcome"))
        yield self._family("warmturn:tier_lookups", _by_one(stats.lookups), ("outcome",))
        yield self._family("warmturn:tier_decisions", _by_one(stats.decisions), ("choice",))
        for name, value in {
            "predicted_seconds": stats.predicted_s,
            "actual_seconds": stats.actual_s,
            "best_seconds": stats.best_s,
            "regret_seconds": stats.regret_s,
            "given_up_blocks": float(stats.num_given_up),
        }.items():
            yield self._family(f"warmturn:tier_{name}", {(): value}, ())
        blocks = GaugeMetricFamily(
            "warmturn:tier_blocks", "Blocks that can be read.", labels=(*_LABELS, "tier")
        )
        for tier, num_blocks in self._num_blocks():
            blocks.add_metric((*self._label_values, tier), num_blocks)
        yield blocks

    def _num_blocks(self) -> Iterator[tuple[str, int]]:
        yield "host", self._tiers.host.num_ready
        for name, tier in self._tiers.lower.items():
            yield name, len(tier.known) if tier.index is None else tier.index.num_ready

    def _traffic(self, stats: TierStats) -> Iterator[Metric]:
        """Loads towards the device, stores away from it; each hop counts for the lower tier."""
        order = ["device", "host", "disk", "shared"]
        for unit, moved in (("bytes", stats.moved_bytes), ("time", stats.moved_s)):
            for direction in ("load", "store"):
                values = {
                    (max(pair, key=order.index),): float(value)
                    for pair, value in moved.items()
                    if (order.index(pair[0]) > order.index(pair[1])) == (direction == "load")
                }
                yield self._family(f"vllm:kv_offload_{direction}_{unit}", values, ("tier",))

    def _family(
        self,
        name: str,
        values: Mapping[Any, float],
        labels: tuple[str, ...],
    ) -> Metric:
        """One counter; `values` by tuples of the further `labels`' values."""
        family = CounterMetricFamily(
            name, "See docs/reference/metrics.md.", labels=(*_LABELS, *labels)
        )
        for key, value in sorted(values.items()):
            family.add_metric((*self._label_values, *map(str, key)), value)
        return family


def _by_one(counts: Mapping[str, int]) -> dict[tuple[str], float]:
    return {(name,): float(value) for name, value in counts.items()}
