"""A `/metrics` page of any engine, read by meaning.

    what                     vLLM                             SGLang                llama.cpp
    looked up / found        prefix_cache_queries, _hits;     -                     -
                             older: gpu_prefix_cache_*
    found share (gauge)      V0: gpu_prefix_cache_hit_rate    cache_hit_rate        -
    in a tier below          external_prefix_cache_*;         -                     -
                             V0: cpu_prefix_cache_hit_rate
    prompt / generated       prompt_tokens, generation_tokens the same              prompt_tokens,
                                                                                    tokens_predicted
    held by running          kv_cache_usage_perc;             token_usage           kv_cache_usage_ratio
                             older: gpu_cache_usage_perc
    pool                     cache_config_info                max_total_num_tokens  -
    eviction age             kv_block_idle_before_evict_*     -                     -
    idle before reuse        kv_block_reuse_gap_*             -                     -

Old and new names of one thing are never added: the newest that is there counts. `_total` may be
missing, `_created` is no figure, -1 means unknown, and what is not there is None and not 0. The
embedded engine writes vLLM's names.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from warmturn.errors import InvalidInput

__all__ = [
    "EngineFigures",
    "EngineName",
    "IdleHistogram",
    "MetricsPage",
    "counter_named",
    "read_metrics_page",
]

EngineName: TypeAlias = Literal["vllm", "sglang", "llamacpp"]

MAX_CHARS = 8 * 2**20
"""Of a page; real ones have some hundred kilobytes."""

_COUNTERS = {
    "queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    "hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    "external_queries": ("vllm:external_prefix_cache_queries",),
    "external_hits": ("vllm:external_prefix_cache_hits",),
    "prompt_tokens": ("vllm:prompt_tokens", "sglang:prompt_tokens", "llamacpp:prompt_tokens"),
    "cached_tokens": ("vllm:prompt_tokens_cached", "sglang:cached_tokens"),
    "generated_tokens": (
        "vllm:generation_tokens",
        "sglang:generation_tokens",
        "llamacpp:tokens_predicted",
    ),
    "reuse_gap_sum_s": ("vllm:kv_block_reuse_gap_seconds_sum",),
    "reuse_gap_count": ("vllm:kv_block_reuse_gap_seconds_count",),
    "preemptions": ("vllm:num_preemptions", "sglang:num_retracted_reqs"),
}
"""Field → names, newest first, without `_total`."""

_GAUGES = {
    "usage": (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",
    ),
    "hit_rate_gauge": ("vllm:gpu_prefix_cache_hit_rate", "sglang:cache_hit_rate"),
    "host_hit_rate_gauge": ("vllm:cpu_prefix_cache_hit_rate",),
    "capacity_tokens": ("sglang:max_total_num_tokens",),
}
_IDLE = "vllm:kv_block_idle_before_evict_seconds_bucket"
_CONFIG = "vllm:cache_config_info"
_START = "process_start_time_seconds"
_ENGINE_LABELS = ("engine", "dp_rank", "engine_index")


@dataclass(frozen=True, slots=True)
class IdleHistogram:
    """How long blocks lay unused before they were evicted, as the engine counts."""

    bounds_s: tuple[float, ...]
    """Upper bounds, ascending; the last is infinite."""
    counts: tuple[float, ...]
    """Blocks up to each bound, cumulative."""

    @property
    def num_blocks(self) -> float:
        """Evictions counted."""
        return self.counts[-1] if self.counts else 0.0

    def since(self, earlier: "IdleHistogram | None") -> "IdleHistogram":
        """Return what came after `earlier`; all of it where that was another life."""
        if earlier is None or earlier.bounds_s != self.bounds_s:
            return self
        new = tuple(now - old for now, old in zip(self.counts, earlier.counts, strict=True))
        return self if min(new, default=0.0) < 0 else IdleHistogram(self.bounds_s, new)

    @property
    def median_s(self) -> float | None:
        """Half of the blocks lay unused for less; None without evictions.

        Between bounds a straight line; beyond the last finite bound that bound.
        """
        half, low, below = self.num_blocks / 2, 0.0, 0.0
        if not half:
            return None
        for bound, count in zip(self.bounds_s, self.counts, strict=True):
            if count >= half:
                if math.isinf(bound):
                    return low
                return low + (bound - low) * (half - below) / (count - below)
            low, below = bound, count
        return None


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """One engine's figures (one data-parallel rank); None is what it does not say. Tokens."""

    queries: float | None = None
    hits: float | None = None
    external_queries: float | None = None
    external_hits: float | None = None
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    generated_tokens: float | None = None
    preemptions: float | None = None
    reuse_gap_sum_s: float | None = None
    """Seconds that blocks lay idle before they were used again, summed over reuses."""
    reuse_gap_count: float | None = None
    usage: float | None = None
    """Share of the pool that running requests hold."""
    hit_rate_gauge: float | None = None
    host_hit_rate_gauge: float | None = None
    capacity_tokens: float | None = None

    @property
    def hit_rate(self) -> float | None:
        """Share of looked-up tokens found on the device."""
        if self.queries and self.hits is not None:
            return self.hits / self.queries
        return self.hit_rate_gauge if self.queries is None else None


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """One page. Counters are summed over engines, gauges averaged."""

    name: EngineName | None
    """Whose names they are; None where no name is known."""
    engines: Mapping[str, EngineFigures] = field(default_factory=dict)
    """By engine label; empty string where there is none."""
    idle: IdleHistogram | None = None
    start_s: float | None = None
    """Unix time at which the process began; another value is another life."""

    def total(self, figure: str) -> float | None:
        """Return a counter summed over engines, None where none has it."""
        values = self._values(figure)
        return sum(values) if values else None

    def mean(self, figure: str) -> float | None:
        """Return a gauge averaged over engines, None where none has it."""
        values = self._values(figure)
        return sum(values) / len(values) if values else None

    @property
    def hit_rate(self) -> float | None:
        """Share of looked-up tokens found on the device, over all engines."""
        queries, hits = self.total("queries"), self.total("hits")
        if queries and hits is not None:
            return hits / queries
        return self.mean("hit_rate_gauge") if queries is None else None

    @property
    def external_hit_rate(self) -> float | None:
        """Of what the device did not have, the share found in a tier below."""
        queries, hits = self.total("external_queries"), self.total("external_hits")
        return hits / queries if queries and hits is not None else None

    def _values(self, figure: str) -> list[float]:
        found = (getattr(engine, figure) for engine in self.engines.values())
        return [value for value in found if value is not None]


_Samples: TypeAlias = dict[str, dict[str, float]]
"""Metric → engine label → value, several series of one engine summed up."""


def read_metrics_page(text: str) -> MetricsPage:
    """Return the page. Raises `InvalidInput` for text that is no Prometheus page."""
    samples: _Samples = {}
    buckets: dict[float, float] = {}
    sizes: dict[str, float] = {}
    start_s: float | None = None
    for name, labels, value in _samples(text):
        if name == _START:
            start_s = value
        elif name == _IDLE:
            bound = _bound(labels)
            buckets[bound] = buckets.get(bound, 0.0) + value
        elif name == _CONFIG:
            size = _pool_tokens(labels)
            if size is not None:
                sizes[_engine(labels)] = size
        elif name in _KNOWN and value >= 0:  # -1 is vLLM V0's "unknown"
            by_engine = samples.setdefault(name, {})
            by_engine[_engine(labels)] = by_engine.get(_engine(labels), 0.0) + value
    return MetricsPage(_name_of(samples), _figures(samples, sizes), _histogram(buckets), start_s)


def counter_named(figure: str, values: Mapping[str, float]) -> float | None:
    """Return a counter out of values under an engine's names, the newest name that is there."""
    plain = {name.removesuffix("_total"): value for name, value in values.items()}
    return next((plain[name] for name in _COUNTERS[figure] if name in plain), None)


def _samples(text: str) -> Iterable[tuple[str, Mapping[str, str], float]]:
    """Yield series under their names without `_total`, SGLang's with a colon."""
    if len(text) > MAX_CHARS:
        raise InvalidInput(
            f"a metrics page of {len(text):,} characters is no engine's; at most {MAX_CHARS:,}"
        )
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.replace("sglang_", "sglang:", 1)
                if not name.endswith("_created") and not math.isnan(sample.value):
                    yield name.removesuffix("_total"), sample.labels, float(sample.value)
    except (ValueError, KeyError, IndexError) as error:
        raise InvalidInput(
            f"this is no page of Prometheus metrics ({str(error)[:80]}); give an engine's /metrics"
        ) from error


_KNOWN = frozenset(name for names in (*_COUNTERS.values(), *_GAUGES.values()) for name in names)


def _engine(labels: Mapping[str, str]) -> str:
    return next((labels[name] for name in _ENGINE_LABELS if name in labels), "")


def _bound(labels: Mapping[str, str]) -> float:
    try:
        return float(labels.get("le", "+Inf"))
    except ValueError:
        return math.inf


def _pool_tokens(labels: Mapping[str, str]) -> float | None:
    size, blocks = labels.get("kv_cache_size_tokens"), labels.get("num_gpu_blocks")
    block_size = labels.get("block_size")
    if size is not None and size.isdecimal() and int(size):
        return float(size)
    if block_size and blocks and block_size.isdecimal() and blocks.isdecimal():
        return float(int(block_size) * int(blocks)) or None
    return None


def _name_of(samples: _Samples) -> EngineName | None:
    prefixes = {name.partition(":")[0] for name in samples}
    names: tuple[EngineName, ...] = ("vllm", "sglang", "llamacpp")
    return next((name for name in names if name in prefixes), None)


def _figures(samples: _Samples, sizes: Mapping[str, float]) -> dict[str, EngineFigures]:
    found: dict[str, dict[str, float]] = {}
    for figure, names in (_COUNTERS | _GAUGES).items():
        newest = next((samples[name] for name in names if name in samples), {})
        for engine, value in newest.items():
            found.setdefault(engine, {})[figure] = value
    for engine, size in sizes.items():
        # vLLM's info has an engine label like the others; older ones have none at all.
        owners = [engine] if engine in found or not found else list(found)
        for owner in owners:
            found.setdefault(owner, {})["capacity_tokens"] = size
    return {engine: EngineFigures(**figures) for engine, figures in sorted(found.items())}


def _histogram(buckets: Mapping[float, float]) -> IdleHistogram | None:
    if not buckets:
        return None
    bounds = tuple(sorted(buckets))
    return IdleHistogram(bounds, tuple(buckets[bound] for bound in bounds))
