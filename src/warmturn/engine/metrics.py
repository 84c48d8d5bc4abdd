"""Prometheus metrics of one replica: vLLM's names with vLLM's meaning, under `vllm:`.

One registry per `EngineMetrics`, so that two replicas in a process never mix. What is
counted where, when it differs from what the name suggests, is in docs/reference/metrics.md.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from warmturn.cache.tiers import TierManager
from warmturn.engine.api import EngineStats, FinishReason
from warmturn.engine.tier_metrics import TierCollector
from warmturn.metrics import TurnMetrics

__all__ = ["BulkHistogram", "EngineMetrics"]

# Bucket bounds are vLLM's, so that its dashboards fit.
# fmt: off
_TTFT_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)
_PER_TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
)
_REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    240.0, 480.0, 960.0, 1920.0, 7680.0,
)
_BLOCK_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0,
    120.0, 300.0, 600.0, 1200.0, 1800.0,
)
# fmt: on
_STEP_TOKENS = tuple(float(2**power) for power in range(15))  # 1 … 16,384

_LABELS = ("model_name", "engine")
_SOURCES = {"shared": "external_unspecified"}
"""vLLM's words for tiers that it calls otherwise."""
NOTHING_LOADED: Mapping[str, int] = {}


class EngineMetrics:
    """What the engine's loop and the server count. All methods are O(1) but `evicted`.

    The loop calls `admitted` once per request, at its first admission, so that a request
    that is preempted and comes back is not counted as a hit of its own blocks; `finished`
    once for each admitted request, cancelled ones included; `step`, `preempted`, `evicted`
    as they happen. The server calls the rest.
    """

    def __init__(
        self, model_name: str, *, max_model_len: int, cache_config: Mapping[str, str] | None = None
    ) -> None:
        """`cache_config` are further labels of `cache_config_info`, such as the hash in use."""
        self.registry = CollectorRegistry()
        self._label_values = (model_name, "0")  # one engine per server: index 0
        self._cache_config = dict(cache_config or {})
        self._define_counters()
        self._define_times()
        self._define_lengths(max_model_len)
        self._define_block_times()

    def watch(self, stats: Callable[[], EngineStats]) -> None:
        """Read the gauges from `stats` at each scrape, and the pool's size once, now."""
        self.registry.register(_StatsGauges(stats, self._label_values))
        first = stats()
        info = {
            "block_size": str(first.block_size),
            "num_gpu_blocks": str(first.num_blocks),
            "kv_cache_size_tokens": str(first.num_blocks * first.block_size),
            "enable_prefix_caching": "True",
        } | self._cache_config
        names = ("engine", *info)
        gauge = Gauge(
            "vllm:cache_config_info", "The pool's configuration.", names, registry=self.registry
        )
        gauge.labels(engine=self._label_values[1], **info).set(1)

    def watch_tiers(self, tiers: TierManager) -> None:
        """Read what the tiers did at each scrape."""
        self.registry.register(TierCollector(tiers, self._label_values))

    def admitted(
        self,
        prompt_tokens: int,
        cached_tokens: int,
        loaded_tokens: Mapping[str, int] = NOTHING_LOADED,
    ) -> None:
        """Count a request's prompt once, however often it is admitted again.

        `loaded_tokens` are those of `cached_tokens` that came from below the pool, by tier.
        """
        num_loaded = sum(loaded_tokens.values())
        self._prefix_queries.inc(prompt_tokens)
        self._prefix_hits.inc(cached_tokens - num_loaded)
        self._external_queries.inc(prompt_tokens - (cached_tokens - num_loaded))
        self._external_hits.inc(num_loaded)
        self._prompt_tokens.inc(prompt_tokens)
        self._prompt_tokens_cached.inc(cached_tokens)
        self._prompt_source("local_compute").inc(prompt_tokens - cached_tokens)
        self._prompt_source("local_cache_hit").inc(cached_tokens - num_loaded)
        self._prompt_source("external_kv_transfer").inc(num_loaded)
        self._cached_source("device").inc(cached_tokens - num_loaded)
        for tier, num_tokens in loaded_tokens.items():
            self._cached_source(_SOURCES.get(tier, tier)).inc(num_tokens)

    def finished(self, turn: TurnMetrics, finish_reason: FinishReason) -> None:
        """Record a request that is over.

        An `abort` is not counted as a finish reason here: to the engine a reply that met a
        stop string and one whose client left look alike. The server tells them apart, and
        calls `ended_early`.
        """
        if finish_reason != "abort":
            self._success(finish_reason).inc()
        self._prompt_length.observe(turn.prompt_tokens)
        self._generation_length.observe(turn.generated_tokens)
        self._prefill_length.observe(turn.prefilled_tokens)
        self._e2e_s.observe(turn.e2e_s)
        self._queue_s.observe(turn.queue_s)
        self._inference_s.observe(turn.e2e_s - turn.queue_s)
        if turn.ttft_s is not None:
            self._observe_phases(turn, turn.ttft_s)

    def ended_early(self, finish_reason: FinishReason) -> None:
        """Count a reply cut before the engine ended it: `stop` (a stop string) or `abort`."""
        self._success(finish_reason).inc()

    def step(self, num_tokens: int) -> None:
        """Record the tokens of one engine step, prefill and decode together."""
        self._step_tokens.observe(num_tokens)

    def preempted(self, num_requests: int) -> None:
        """Count requests that lost their blocks and start over."""
        self._preemptions.inc(num_requests)

    def evicted(
        self,
        lifetime_s: npt.NDArray[np.float64],
        idle_s: npt.NDArray[np.float64],
        reuse_gap_s: npt.NDArray[np.float64],
    ) -> None:
        """Record evicted blocks in bulk.

        `lifetime_s` `[num_evicted]`: from filling to eviction; `idle_s` `[num_evicted]`: from
        the last use to eviction; `reuse_gap_s` `[num_reuses]`: between two uses of a block.
        """
        self._block_lifetime_s.observe_all(lifetime_s)
        self._block_idle_s.observe_all(idle_s)
        self._block_reuse_gap_s.observe_all(reuse_gap_s)

    def generated(self, num_tokens: int, *, since_last_s: float | None) -> None:
        """Count tokens that reached the server; `since_last_s` is None for the first ones."""
        self._generation_tokens.inc(num_tokens)
        if since_last_s is not None:
            for _ in range(num_tokens):
                self._inter_token_s.observe(since_last_s / num_tokens)

    def rejected(self) -> None:
        """Count a request refused because the server is full."""
        self._rejections.inc()

    def spliced(self, *, num_spliced_tokens: int, num_drifted_tokens: int) -> None:
        """Count what exact continuation put into one prompt, and what that saved."""
        self._spliced_tokens.inc(num_spliced_tokens)
        self._drifted_tokens.inc(num_drifted_tokens)

    def _define_counters(self) -> None:
        self._prefix_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up.")
        self._prefix_hits = self._counter("prefix_cache_hits", "Prompt tokens found cached.")
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens admitted.")
        self._prompt_tokens_cached = self._counter("prompt_tokens_cached", "Of them, cached.")
        self._prompt_source = self._counters_by(
            "prompt_tokens_by_source",
            "source",
            ("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self._cached_source = self._counters_by(
            "prompt_tokens_cached_by_source",
            "source",
            ("device", "host", "disk", "external_unspecified"),
        )
        self._external_queries = self._counter(
            "external_prefix_cache_queries", "Prompt tokens not in the pool."
        )
        self._external_hits = self._counter(
            "external_prefix_cache_hits", "Of them, loaded from a lower tier."
        )
        self._generation_tokens = self._counter("generation_tokens", "Tokens generated.")
        self._preemptions = self._counter("num_preemptions", "Requests preempted.")
        self._rejections = self._counter("admission_rejections", "Requests refused: server full.")
        self._success = self._counters_by(
            "request_success", "finished_reason", ("stop", "length", "abort")
        )
        self._spliced_tokens = self._counter(
            "continuation_spliced_tokens", "Prompt tokens taken as generated.", prefix="warmturn"
        )
        self._drifted_tokens = self._counter(
            "continuation_drifted_tokens",
            "Spliced tokens that tokenising again would have cut off the cached prefix.",
            prefix="warmturn",
        )

    def _define_times(self) -> None:
        self._ttft_s = self._histogram("time_to_first_token_seconds", _TTFT_S)
        self._inter_token_s = self._histogram("inter_token_latency_seconds", _PER_TOKEN_S)
        self._per_token_s = self._histogram("request_time_per_output_token_seconds", _PER_TOKEN_S)
        self._e2e_s = self._histogram("e2e_request_latency_seconds", _REQUEST_S)
        self._queue_s = self._histogram("request_queue_time_seconds", _REQUEST_S)
        self._prefill_s = self._histogram("request_prefill_time_seconds", _REQUEST_S)
        self._decode_s = self._histogram("request_decode_time_seconds", _REQUEST_S)
        self._inference_s = self._histogram("request_inference_time_seconds", _REQUEST_S)

    def _define_lengths(self, max_model_len: int) -> None:
        lengths = _one_two_five(max_model_len)
        self._prompt_length = self._histogram("request_prompt_tokens", lengths)
        self._generation_length = self._histogram("request_generation_tokens", lengths)
        self._prefill_length = self._histogram("request_prefill_kv_computed_tokens", lengths)
        self._step_tokens = self._histogram("iteration_tokens_total", _STEP_TOKENS)

    def _define_block_times(self) -> None:
        self._block_lifetime_s = self._bulk_histogram("kv_block_lifetime_seconds")
        self._block_idle_s = self._bulk_histogram("kv_block_idle_before_evict_seconds")
        self._block_reuse_gap_s = self._bulk_histogram("kv_block_reuse_gap_seconds")

    def _observe_phases(self, turn: TurnMetrics, ttft_s: float) -> None:
        decode_s = turn.e2e_s - ttft_s
        self._ttft_s.observe(ttft_s)
        self._prefill_s.observe(ttft_s - turn.queue_s)
        self._decode_s.observe(decode_s)
        if turn.generated_tokens > 1:
            self._per_token_s.observe(decode_s / (turn.generated_tokens - 1))

    def _counter(self, name: str, meaning: str, *, prefix: str = "vllm") -> Counter:
        counter = Counter(f"{prefix}:{name}", meaning, _LABELS, registry=self.registry)
        return counter.labels(*self._label_values)

    def _counters_by(
        self, name: str, label: str, values: Iterable[str]
    ) -> Callable[[str], Counter]:
        counter = Counter(
            f"vllm:{name}", f"Split by {label}.", (*_LABELS, label), registry=self.registry
        )
        children = {value: counter.labels(*self._label_values, value) for value in values}
        return children.__getitem__

    def _histogram(self, name: str, buckets: Iterable[float]) -> Histogram:
        histogram = Histogram(
            f"vllm:{name}",
            "See docs/reference/metrics.md.",
            _LABELS,
            buckets=tuple(buckets),
            registry=self.registry,
        )
        return histogram.labels(*self._label_values)

    def _bulk_histogram(self, name: str) -> "BulkHistogram":
        histogram = BulkHistogram(f"vllm:{name}", _BLOCK_S, self._label_values)
        self.registry.register(histogram)
        return histogram


class BulkHistogram(Collector):
    """A histogram that takes whole arrays: an eviction can free thousands of blocks at once."""

    def __init__(self, name: str, bounds: tuple[float, ...], label_values: tuple[str, ...]) -> None:
        self._name = name
        self._label_values = label_values
        self._bounds = np.asarray(bounds)
        self._counts = np.zeros(len(bounds) + 1, dtype=np.int64)  # the last one is above all bounds
        self._sum = 0.0

    def observe_all(self, values: npt.NDArray[np.float64]) -> None:
        """Count every value in the first bucket whose bound it does not exceed."""
        buckets = np.searchsorted(self._bounds, values, side="left")
        self._counts += np.bincount(buckets, minlength=len(self._counts))
        self._sum += float(np.sum(values))

    def collect(self) -> Iterable[Metric]:
        """Give the one family, with cumulative counts as Prometheus wants them."""
        family = HistogramMetricFamily(self._name, "See docs/reference/metrics.md.", labels=_LABELS)
        bounds = [*map(str, self._bounds.tolist()), "+Inf"]
        totals = np.cumsum(self._counts).tolist()
        family.add_metric(
            self._label_values, list(zip(bounds, totals, strict=True)), sum_value=self._sum
        )
        return [family]


class _StatsGauges(Collector):
    """Gauges of the moment, read when somebody looks."""

    def __init__(self, stats: Callable[[], EngineStats], label_values: tuple[str, ...]) -> None:
        self._stats = stats
        self._label_values = label_values

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        values = {
            "num_requests_running": (stats.num_running, "Requests that hold blocks."),
            "num_requests_waiting": (stats.num_waiting, "Requests that wait for admission."),
            "kv_cache_usage_perc": (
                stats.kv_cache_usage_share,
                "Share of blocks that running requests hold, 0 to 1; 0 when idle.",
            ),
        }
        for name, (value, meaning) in values.items():
            family = GaugeMetricFamily(f"vllm:{name}", meaning, labels=_LABELS)
            family.add_metric(self._label_values, value)
            yield family


def _one_two_five(top: int) -> list[float]:
    """1, 2, 5, 10, 20, 50 … up to `top`."""
    bounds = [mantissa * 10.0**power for power in range(10) for mantissa in (1, 2, 5)]
    return [bound for bound in bounds if bound <= top]
