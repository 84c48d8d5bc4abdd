import math

import pytest

from warmturn.engine.api import EngineStats
from warmturn.engine.metrics import EngineMetrics
from warmturn.errors import InvalidInput
from warmturn.horizon import IdleHistogram, read_metrics_page


def test_what_is_not_there_is_unknown_and_not_zero():
    page = read_metrics_page("up 1\n")
    assert page.name is None
    assert page.hit_rate is page.external_hit_rate is page.total("hits") is None
    assert page.mean("usage") is None


def test_an_empty_counter_has_no_rate():
    page = read_metrics_page("vllm:prefix_cache_queries_total 0\nvllm:prefix_cache_hits_total 0\n")
    assert page.total("queries") == 0
    assert page.hit_rate is None


def test_several_models_of_one_engine_are_summed():
    text = (
        'vllm:generation_tokens_total{engine="0",model_name="a"} 3\n'
        'vllm:generation_tokens_total{engine="0",model_name="b"} 4\n'
    )
    assert read_metrics_page(text).total("generated_tokens") == 7


def test_nan_and_minus_one_say_nothing():
    page = read_metrics_page("vllm:kv_cache_usage_perc NaN\nvllm:gpu_prefix_cache_hit_rate -1\n")
    assert page.mean("usage") is None
    assert page.hit_rate is None


@pytest.mark.parametrize("text", ["<html>not metrics</html>", "vllm:x{a= 1\n", "a b c d\n"])
def test_what_is_no_page_is_named(text):
    with pytest.raises(InvalidInput, match="no page of Prometheus metrics"):
        read_metrics_page(text)


def test_a_page_without_end_is_refused():
    with pytest.raises(InvalidInput, match="no engine's"):
        read_metrics_page("x" * (8 * 2**20 + 1))


def test_the_embedded_engine_s_own_page_is_understood():
    import numpy as np
    from prometheus_client import generate_latest

    stats = EngineStats(**dict.fromkeys(EngineStats.__dataclass_fields__, 0))
    stats = EngineStats(
        **{f: getattr(stats, f) for f in EngineStats.__dataclass_fields__}
        | {"num_blocks": 10, "block_size": 16}
    )
    metrics = EngineMetrics("m", max_model_len=64)
    metrics.watch(lambda: stats)
    metrics.admitted(100, 40)
    metrics.generated(7, since_last_s=None)
    ages = np.array([15.0, 15.0])
    metrics.evicted(ages, ages, np.array([]))
    page = read_metrics_page(generate_latest(metrics.registry).decode())
    assert page.name == "vllm"
    assert page.total("queries") - page.total("hits") == 60
    assert page.total("generated_tokens") == 7
    assert page.total("capacity_tokens") == 160
    assert 10 < page.idle.median_s <= 20


@pytest.mark.parametrize(
    ("bounds", "counts", "median"),
    [
        ((10, 20, math.inf), (0, 4, 4), 15),
        ((10, 20, math.inf), (4, 4, 4), 5),
        ((10, 20, math.inf), (0, 0, 4), 20),
        ((10, math.inf), (0, 0), None),
    ],
)
def test_a_median_lies_on_a_line_between_bounds(bounds, counts, median):
    assert IdleHistogram(bounds, counts).median_s == median
