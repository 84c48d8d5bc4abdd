import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.client import call
from tests.support.fake_engine import Script
from tests.support.tiny_server import HELLO, TinyServer, says
from warmturn.cache.tiers import TierManager
from warmturn.engine.metrics import BulkHistogram, EngineMetrics
from warmturn.metrics import TurnMetrics

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


@pytest.fixture
def metrics() -> EngineMetrics:
    return EngineMetrics("tiny", max_model_len=100)


def value(metrics: EngineMetrics, name: str, **labels: str) -> float:
    """Return one sample."""
    labels = {"model_name": "tiny", "engine": "0"} | labels
    found = metrics.registry.get_sample_value(name, labels)
    assert found is not None, name
    return found


def turn(**changes) -> TurnMetrics:
    """A turn that waited 1 s, prefilled for 2 s and decoded 4 tokens in 3 s."""
    facts = {
        "prompt_tokens": 12,
        "cached_tokens": 8,
        "prefilled_tokens": 4,
        "generated_tokens": 4,
        "num_preemptions": 0,
        "queue_s": 1.0,
        "ttft_s": 3.0,
        "e2e_s": 6.0,
    }
    return TurnMetrics(**(facts | changes))


def test_prompt_tokens_are_counted_by_source_at_admission(metrics):
    metrics.admitted(12, 8)
    metrics.admitted(10, 0)
    assert value(metrics, "vllm:prefix_cache_queries_total") == 22
    assert value(metrics, "vllm:prefix_cache_hits_total") == 8
    assert value(metrics, "vllm:prompt_tokens_total") == 22
    assert value(metrics, "vllm:prompt_tokens_cached_total") == 8
    source = "vllm:prompt_tokens_by_source_total"
    assert value(metrics, source, source="local_compute") == 14
    assert value(metrics, source, source="local_cache_hit") == 8


def test_loaded_tokens_are_external_hits_by_tier(metrics):
    metrics.admitted(20, 16, {"host": 4, "shared": 8})
    assert value(metrics, "vllm:prefix_cache_hits_total") == 4
    assert value(metrics, "vllm:external_prefix_cache_queries_total") == 16
    assert value(metrics, "vllm:external_prefix_cache_hits_total") == 12
    by = "vllm:prompt_tokens_cached_by_source_total"
    sources = {"device": 4, "host": 4, "disk": 0, "external_unspecified": 8}
    assert {s: value(metrics, by, source=s) for s in sources} == sources


def test_a_preemption_adds_no_hits(metrics):
    """Case E02 of the reports: hits of a request's own blocks after preemption are no reuse."""
    metrics.admitted(1024, 64)
    metrics.preempted(1)
    metrics.finished(turn(prompt_tokens=1024, num_preemptions=1), "stop")
    assert value(metrics, "vllm:prefix_cache_queries_total") == 1024
    assert value(metrics, "vllm:prefix_cache_hits_total") == 64
    assert value(metrics, "vllm:num_preemptions_total") == 1


@pytest.mark.parametrize(
    ("name", "total_s"),
    [
        ("time_to_first_token_seconds", 3.0),
        ("request_queue_time_seconds", 1.0),
        ("request_prefill_time_seconds", 2.0),
        ("request_decode_time_seconds", 3.0),
        ("request_inference_time_seconds", 5.0),
        ("e2e_request_latency_seconds", 6.0),
        ("request_time_per_output_token_seconds", 1.0),
        ("request_prompt_tokens", 12),
        ("request_generation_tokens", 4),
        ("request_prefill_kv_computed_tokens", 4),
    ],
)
def test_a_finished_turn_is_split_into_its_phases(metrics, name, total_s):
    metrics.finished(turn(), "length")
    assert value(metrics, f"vllm:{name}_sum") == pytest.approx(total_s)
    assert value(metrics, f"vllm:{name}_count") == 1


def test_a_turn_without_tokens_has_no_time_to_first_token(metrics):
    metrics.finished(turn(ttft_s=None, generated_tokens=0), "abort")
    assert value(metrics, "vllm:time_to_first_token_seconds_count") == 0
    assert value(metrics, "vllm:e2e_request_latency_seconds_count") == 1


def test_a_turn_of_one_token_has_no_time_per_further_token(metrics):
    metrics.finished(turn(generated_tokens=1), "stop")
    assert value(metrics, "vllm:request_time_per_output_token_seconds_count") == 0


def test_only_the_server_tells_a_stop_string_from_a_client_that_left(metrics):
    metrics.finished(turn(), "abort")
    metrics.ended_early("stop")
    metrics.finished(turn(), "length")
    counts = {
        reason: value(metrics, "vllm:request_success_total", finished_reason=reason)
        for reason in ("stop", "length", "abort")
    }
    assert counts == {"stop": 1, "length": 1, "abort": 0}


def test_tokens_of_one_step_share_the_time_since_the_last_one(metrics):
    metrics.generated(1, since_last_s=None)
    metrics.generated(2, since_last_s=0.06)
    metrics.generated(0, since_last_s=0.5)
    assert value(metrics, "vllm:generation_tokens_total") == 3
    name = "vllm:inter_token_latency_seconds"
    assert value(metrics, f"{name}_count") == 2
    assert value(metrics, f"{name}_bucket", le="0.05") == 2


def test_steps_and_evictions_are_histograms(metrics):
    metrics.step(512)
    metrics.evicted(np.array([0.5, 9.0]), np.array([0.25, 8.0]), np.array([]))
    assert value(metrics, "vllm:iteration_tokens_total_sum") == 512
    assert value(metrics, "vllm:kv_block_lifetime_seconds_sum") == 9.5
    assert value(metrics, "vllm:kv_block_idle_before_evict_seconds_bucket", le="0.5") == 1
    assert value(metrics, "vllm:kv_block_reuse_gap_seconds_count") == 0


@given(st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 99.0])))
def test_a_bulk_histogram_counts_as_one_value_at_a_time_would(values):
    histogram = BulkHistogram("x", (1.0, 2.0, 3.0), ("tiny", "0"))
    histogram.observe_all(np.array(values[:2]))
    histogram.observe_all(np.array(values[2:]))
    (family,) = histogram.collect()
    counts = {s.labels["le"]: s.value for s in family.samples if s.name == "x_bucket"}
    expected = {str(bound): sum(v <= bound for v in values) for bound in (1.0, 2.0, 3.0)}
    assert counts == expected | {"+Inf": len(values)}
    assert next(s.value for s in family.samples if s.name == "x_sum") == sum(values)


def test_two_replicas_in_one_process_do_not_mix():
    one, two = (EngineMetrics("tiny", max_model_len=100) for _ in range(2))
    one.admitted(5, 0)
    assert value(two, "vllm:prompt_tokens_total") == 0


def test_gauges_are_read_when_scraped():
    server = TinyServer()
    assert server.value("vllm:num_requests_running") == 0
    server.engine.requests.append(object())
    assert server.value("vllm:num_requests_running") == 1
    assert server.value("vllm:num_requests_waiting") == 0
    assert server.value("vllm:kv_cache_usage_perc") == 0


def test_the_pool_is_described_once():
    text = call(TinyServer().app, "GET", "/metrics").text
    (line,) = re.findall(r"^vllm:cache_config_info\{(.*)\} 1\.0$", text, flags=re.MULTILINE)
    assert 'block_size="4"' in line
    assert 'num_gpu_blocks="8"' in line
    assert 'kv_cache_size_tokens="32"' in line


def test_what_a_turn_over_http_adds():
    server = TinyServer(says("hey", num_cached_tokens=8))
    call(server.app, "POST", "/v1/chat/completions", json=HELLO)
    assert server.value("vllm:prefix_cache_hits_total") == 8
    assert server.value("vllm:generation_tokens_total") == 3
    assert server.value("vllm:inter_token_latency_seconds_count") == 2
    assert server.value("vllm:request_success_total", finished_reason="length") == 1


def test_a_stop_string_counts_as_a_stop():
    server = TinyServer(says("a.b"))
    call(server.app, "POST", "/v1/chat/completions", json=HELLO | {"stop": "."})
    assert server.value("vllm:request_success_total", finished_reason="stop") == 1
    assert server.value("vllm:generation_tokens_total") == 2


def test_neither_prompts_nor_salts_are_exported():
    server = TinyServer(Script())
    call(server.app, "POST", "/v1/chat/completions", json=HELLO | {"cache_salt": "s4lt"})
    text = call(server.app, "GET", "/metrics").text
    assert "s4lt" not in text
    assert "hello" not in text


def test_every_exported_metric_is_in_the_reference_and_no_other():
    server = TinyServer()
    tiers = TierManager(block_bytes=8, block_size=4, host_slots=1, disk_slots=1, has_shared=True)
    server.metrics.watch_tiers(tiers)
    text = call(server.app, "GET", "/metrics").text
    exported = {
        (name, kind)
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, flags=re.MULTILINE)
        if not name.endswith("_created")
    }
    rows = re.findall(r"^\| `(\S+?)(?:\{.*\})?` \| (\w+) \|", REFERENCE.read_text(), re.MULTILINE)
    assert exported == set(rows)
