"""What a replica's `/metrics` say of load and capacity, whichever engine writes them.

    what                 vLLM (and the embedded engine)        SGLang                  llama.cpp
    running              num_requests_running                  num_running_reqs        requests_processing
    waiting              num_requests_waiting                  num_queue_reqs          requests_deferred
    share of the pool    kv_cache_usage_perc,                  token_usage             kv_cache_usage_ratio
                         before 0.11 gpu_cache_usage_perc
    tokens of the pool   cache_config_info: block_size and     max_total_num_tokens    -
                         num_gpu_blocks
    started              process_start_time_seconds            the same                the same

SGLang writes `:` or `_` after its prefix. A name that is missing is unknown (None), never 0. Counts
are summed over data-parallel engines, shares averaged; a pool is one engine's.
"""

import re
from dataclasses import dataclass

__all__ = ["ReplicaMetrics", "read_metrics"]

MAX_CHARS = 4 * 2**20
"""Of a page; real ones have some hundred kilobytes. What is beyond is not read."""

_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
_USAGE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)
_CAPACITY, _CONFIG = "sglang:max_total_num_tokens", "vllm:cache_config_info"
_START = "process_start_time_seconds"
_WANTED = frozenset((*_RUNNING, *_WAITING, *_USAGE, _CAPACITY, _CONFIG, _START))

_SAMPLE = re.compile(
    r"^(?P<name>(?:vllm:|sglang[:_]|llamacpp:|process_start)\w+)(?:\{(?P<labels>[^\n]*)\})? "
    r"(?P<value>[-+.\w]+)",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """One look at a replica's `/metrics`; None is what it does not say."""

    num_running: int | None = None
    num_waiting: int | None = None
    kv_usage_share: float | None = None
    """Of the pool, by running requests; 0 on an idle engine, however full its cache is."""
    capacity_tokens: int | None = None
    """Of one rank's pool."""
    block_size: int | None = None
    start_s: float | None = None
    """Unix time; another value is another life of the engine."""


def read_metrics(text: str) -> ReplicaMetrics:
    """Return what the page says; garbage says nothing. Linear in its length."""
    found: dict[str, list[tuple[str, float]]] = {}
    for match in _SAMPLE.finditer(text[:MAX_CHARS]):
        name = match["name"].replace("sglang_", "sglang:", 1)
        if name in _WANTED and (value := _number(match["value"])) is not None:
            found.setdefault(name, []).append((match["labels"] or "", value))
    capacity, block_size = _pool(found)
    usage = _first(found, _USAGE)
    return ReplicaMetrics(
        num_running=_sum(_first(found, _RUNNING)),
        num_waiting=_sum(_first(found, _WAITING)),
        kv_usage_share=sum(usage) / len(usage) if usage else None,
        capacity_tokens=capacity,
        block_size=block_size,
        start_s=next(iter(_first(found, (_START,))), None),
    )


def _number(text: str) -> float | None:
    """Return a finite value of at least 0; vLLM's -1 meant unknown."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _first(found: dict[str, list[tuple[str, float]]], names: tuple[str, ...]) -> list[float]:
    """Return the values of the first name that is there: old and new names are never added."""
    return next(([value for _, value in found[name]] for name in names if name in found), [])


def _sum(values: list[float]) -> int | None:
    return int(sum(values)) if values else None


def _pool(found: dict[str, list[tuple[str, float]]]) -> tuple[int | None, int | None]:
    for labels, _ in found.get(_CONFIG, []):
        named = dict(_LABEL.findall(labels))
        block_size, blocks = _count(named.get("block_size")), _count(named.get("num_gpu_blocks"))
        size = _count(named.get("kv_cache_size_tokens"))
        if size is None and block_size is not None and blocks is not None:
            size = block_size * blocks
        return size, block_size
    return _sum(_first(found, (_CAPACITY,))[:1]), None


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and int(text) > 0 else None
