"""Each rule: what it finds, and the remedy it names, which then silences it."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warmturn.errors import InvalidInput
from warmturn.integrations.vllm_arguments import VllmArguments
from warmturn.integrations.vllm_warnings import review

KEYS = st.sampled_from(
    ["kv_connector", "kv_connector_extra_config", "connectors", "secondary_tiers", "type",
     "endpoint", "replay_endpoint", "enable_kv_cache_events", "offload_prompt_only"]
)  # fmt: skip
QUIET = ("--host", "127.0.0.1", "--enable-prompt-tokens-details")


def found(*words, on_cpu=False, **environment):
    line = VllmArguments.parse([*QUIET, *words])
    return [(w.setting, w.effect) for w in review(line, environment, on_cpu=on_cpu)]


def connector(name, **extra):
    return (
        "--kv-transfer-config",
        json.dumps({"kv_connector": name, "kv_connector_extra_config": extra}),
    )


def events(**config):
    return ("--kv-events-config", json.dumps({"enable_kv_cache_events": True, **config}))


def test_a_line_with_nothing_wrong_is_not_warned_of():
    assert found("--enable-prefix-caching", *events(endpoint="ipc://a", replay_endpoint="b")) == []


def test_a_warning_is_one_line_with_its_remedy():
    (warning,) = review(
        VllmArguments.parse([*QUIET, "--no-enable-prefix-caching"]), {}, on_cpu=False
    )
    assert str(warning) == (
        "--no-enable-prefix-caching: every turn computes its whole prompt again; leave it out"
    )


def test_offload_of_prompts_only_loses_the_replies():
    assert found(*connector("OffloadingConnector")) == [
        ("offload_prompt_only (default true)", "reuse")
    ]
    assert found(*connector("OffloadingConnector", offload_prompt_only=False)) == []
    assert found("--kv-offloading-size", "1") == [("--kv-offloading-size", "reuse")]


def test_a_store_that_ignores_salts_shows_one_tenant_what_another_computed():
    assert found(*connector("ExampleConnector")) == [("kv_connector ExampleConnector", "isolation")]


def test_connectors_inside_a_multi_connector_are_looked_at():
    inner = [{"kv_connector": "ExampleConnector"}, {"kv_connector": "OffloadingConnector"}]
    assert [setting for setting, _ in found(*connector("MultiConnector", connectors=inner))] == [
        "kv_connector ExampleConnector",
        "offload_prompt_only (default true)",
    ]


@pytest.mark.parametrize("kind", ["example", "fs"])
def test_tiers_that_serve_wrong_bytes(kind):
    tiers = connector(
        "OffloadingConnector", offload_prompt_only=False, secondary_tiers=[{"type": kind}]
    )
    assert found(*tiers) == [(f"secondary tier '{kind}'", "correctness")]


def test_what_does_not_start_on_a_cpu():
    shipped = connector("OffloadingConnector", offload_prompt_only=False)
    own = connector("OffloadingConnector", offload_prompt_only=False, spec_module_path="m")
    assert found(*shipped, on_cpu=True) == [("the shipped offload", "start")]
    assert found(*own, on_cpu=True) == []
    assert found("--block-size", "16", on_cpu=True) == [("--block-size 16", "start")]
    assert found("--block-size", "64", on_cpu=True) == []
    assert found("--block-size", "16") == []


def test_hashes_that_differ_between_processes():
    option = ("--prefix-caching-hash-algo", "xxhash_cbor")
    assert found(*option) == [("--prefix-caching-hash-algo xxhash_cbor", "reuse")]
    assert found(*option, PYTHONHASHSEED="0") == []
    assert found("--prefix-caching-hash-algo", "sha256_cbor") == []


@pytest.mark.parametrize(
    ("endpoint", "effect"),
    [
        ("tcp://127.0.0.1:5557", "measuring"),
        ("tcp://gateway:5557", "measuring"),
        ("tcp://*:5557", "isolation"),
        ("tcp://[::]:5557", "isolation"),
    ],
)
def test_an_event_endpoint_that_calls_out_or_that_everybody_reads(endpoint, effect):
    sockets = events(endpoint=endpoint, replay_endpoint="r")
    assert found(*sockets) == [(f"event endpoint {endpoint}", effect)]


def test_events_that_are_not_published_or_cannot_be_had_again():
    assert found("--kv-events-config", '{"endpoint":"ipc://a","replay_endpoint":"b"}') == [
        ("--kv-events-config", "measuring")
    ]
    assert found(*events(endpoint="ipc://a")) == [
        ("--kv-events-config without replay_endpoint", "measuring")
    ]


def test_the_default_event_endpoint_is_open_to_all():
    assert ("event endpoint tcp://*:5557", "isolation") in found(*events(replay_endpoint="r"))


def test_doors_that_stand_open():
    assert found(VLLM_SERVER_DEV_MODE="1") == [("VLLM_SERVER_DEV_MODE=1", "isolation")]
    assert found("--host", "0.0.0.0") == [("--host 0.0.0.0", "isolation")]
    assert found("--host", "0.0.0.0", "--api-key", "k") == []


def test_a_line_without_a_host_binds_everywhere():
    line = VllmArguments.parse(["--enable-prompt-tokens-details"])
    assert [w.setting for w in review(line, {}, on_cpu=False)] == ["--host (all interfaces)"]


def test_what_cannot_be_read_afterwards():
    line = VllmArguments.parse(["--host", "localhost"])
    assert [w.setting for w in review(line, {}, on_cpu=False)] == [
        "no --enable-prompt-tokens-details"
    ]
    assert found("--max-log-len", "100") == [("--max-log-len", "measuring")]


def test_conversations_that_live_in_one_replica():
    assert found(VLLM_ENABLE_RESPONSES_API_STORE="1") == [
        ("VLLM_ENABLE_RESPONSES_API_STORE=1", "reuse")
    ]


JSON = st.recursive(
    st.sampled_from([None, True, 0, "ipc://a", "OffloadingConnector"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine
@given(JSON, JSON)
def test_any_json_is_reviewed_or_refused(transfer, sockets):
    words = [
        "--kv-transfer-config",
        json.dumps(transfer),
        "--kv-events-config",
        json.dumps(sockets),
    ]
    try:
        review(VllmArguments.parse(words), {}, on_cpu=True)
    except InvalidInput as error:
        assert "not a JSON object" in str(error)  # noqa: PT017 - both ends are right
