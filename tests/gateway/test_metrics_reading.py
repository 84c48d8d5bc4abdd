from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from warmturn.engine.api import EngineStats
from warmturn.engine.metrics import EngineMetrics
from warmturn.gateway.metrics_reading import ReplicaMetrics, read_metrics

CASE = Path(__file__).parents[1] / "cases" / "data" / "E01-metrics-renames"

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0"} 0.4
vllm:kv_cache_usage_perc{engine="1"} 0.2
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000",odd="a\\"b"} 1.0
process_start_time_seconds 1.79e+09
"""


def test_vllms_counts_are_summed_over_engines_and_shares_averaged():
    assert read_metrics(VLLM) == ReplicaMetrics(
        num_running=4,
        num_waiting=2,
        kv_usage_share=pytest.approx(0.3),
        capacity_tokens=16_000,
        block_size=16,
        start_s=1.79e9,
    )


def test_both_spellings_of_sglang_are_read():
    for mark in (":", "_"):
        text = "".join(
            f'sglang{mark}{name}{{model_name="m"}} {value}\n'
            for name, value in {
                "num_running_reqs": 5,
                "num_queue_reqs": 1.0,
                "token_usage": 0.41,
                "max_total_num_tokens": 40_000,
            }.items()
        )
        assert read_metrics(text) == ReplicaMetrics(5, 1, 0.41, 40_000, None, None)


def test_llamacpp_has_no_capacity_and_that_is_unknown_not_zero():
    text = "llamacpp:requests_processing 2\nllamacpp:requests_deferred 0\n"
    assert read_metrics(text) == ReplicaMetrics(num_running=2, num_waiting=0)


@pytest.mark.parametrize(
    ("file", "usage"),
    [
        ("vllm_v0.txt", 0.41),
        ("vllm_0.10.txt", 0.41),
        ("vllm_after_removal_dp2.txt", 0.3),
        ("simulator_without_total.txt", None),
        ("sglang_colon.txt", 0.41),
        ("sglang_underscore.txt", 0.41),
    ],
)
def test_renamed_metrics_of_real_reports_mean_the_same(file, usage):
    found = read_metrics((CASE / file).read_text()).kv_usage_share
    assert found == (usage if usage is None else pytest.approx(usage))


def test_the_embedded_engines_own_page_is_read():
    metrics = EngineMetrics("m", max_model_len=100)
    stats = EngineStats(
        num_running=2,
        num_waiting=1,
        kv_cache_usage_share=0.5,
        num_cached_blocks=3,
        num_blocks=64,
        block_size=8,
    )
    metrics.watch(lambda: stats)
    read = read_metrics(generate_latest(metrics.registry).decode())
    assert read == ReplicaMetrics(2, 1, 0.5, 512, 8, None)


def test_minus_one_and_nonsense_are_unknown():
    text = "vllm:num_requests_running -1\nvllm:num_requests_waiting NaN\n"
    text += 'vllm:cache_config_info{block_size="auto",num_gpu_blocks="None"} 1\n'
    assert read_metrics(text) == ReplicaMetrics()


@given(st.text(max_size=300) | st.text('vllm:sgan_{}"=,0 \n.e+-numrqsti', max_size=300))
def test_no_page_makes_it_fail(text):
    read_metrics("vllm:num_requests_running{" + text)
    read_metrics(text)
