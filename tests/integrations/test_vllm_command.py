import json
import shlex

import pytest

from warmturn.errors import InvalidInput
from warmturn.integrations import EventSockets, ServeUse, TierUse, serve_command

SOCKETS = EventSockets("ipc:///run/kv.sock", "ipc:///run/replay.sock", "kv@m")


def line(**use):
    return serve_command(ServeUse(model="org/model", **use))


def value(command, option):
    return command.arguments[command.arguments.index(option) + 1]


def test_the_least_that_later_turns_need_is_on_every_line():
    command = line()
    assert command.arguments == (
        "vllm", "serve", "org/model", "--host", "127.0.0.1", "--port", "8000",
        "--enable-prefix-caching", "--enable-prompt-tokens-details",
    )  # fmt: skip
    assert command.warnings == ()


def test_events_are_published_with_replay():
    assert json.loads(value(line(events=SOCKETS), "--kv-events-config")) == {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "ipc:///run/kv.sock",
        "replay_endpoint": "ipc:///run/replay.sock",
        "topic": "kv@m",
    }


def test_cache_metrics_are_of_every_block():
    command = line(cache_metrics=True)
    assert "--kv-cache-metrics" in command.arguments
    assert value(command, "--kv-cache-metrics-sample") == "1.0"


def test_tiers_are_one_option_with_replies_included():
    command = line(tiers=TierUse("1GiB", disk="/kv:2GiB", shared="redis://c:6379"), on_cpu=True)
    config = json.loads(value(command, "--kv-transfer-config"))
    assert config["kv_connector"] == "OffloadingConnector"
    assert config["kv_connector_extra_config"] == {
        "spec_name": "WarmturnSpec",
        "spec_module_path": "warmturn.integrations.vllm_offload",
        "host_tier": "1GiB",
        "offload_prompt_only": False,
        "disk_tier": "/kv:2GiB",
        "shared_tier": "redis://c:6379",
    }
    assert command.warnings == ()


def test_tiers_that_were_not_asked_for_are_not_named():
    config = json.loads(value(line(tiers=TierUse("1GiB")), "--kv-transfer-config"))
    assert not {"disk_tier", "shared_tier"} & set(config["kv_connector_extra_config"])


def test_a_cpu_server_gets_what_lets_it_start():
    command = line(on_cpu=True)
    assert value(command, "--block-size") == "32"
    assert value(command, "--gpu-memory-utilization") == "0.2"
    assert "--enforce-eager" in command.arguments


def test_the_users_own_option_replaces_ours_in_whatever_spelling():
    command = line(on_cpu=True, extra=("--block_size=64", "--no-enforce-eager"))
    assert "--block-size" not in command.arguments
    assert "--enforce-eager" not in command.arguments
    assert command.arguments[-2:] == ("--block_size=64", "--no-enforce-eager")
    assert {option.words[0] for option in command.options} & {"--block-size"} == set()


def test_the_users_own_options_are_reviewed_with_the_environment():
    use = ServeUse(model="m", extra=("--no-enable-prefix-caching",))
    command = serve_command(use, {"VLLM_SERVER_DEV_MODE": "1"})
    assert [w.setting for w in command.warnings] == [
        "--no-enable-prefix-caching",
        "VLLM_SERVER_DEV_MODE=1",
    ]


def test_each_option_has_a_reason():
    command = line(on_cpu=True, events=SOCKETS, cache_metrics=True, token_ids=True, served_name="m")
    ours = [word for option in command.options for word in option.words]
    assert list(command.arguments[3:]) == ours
    assert all(option.why for option in command.options)


def test_the_shell_line_is_the_command_when_it_is_read_back():
    command = line(events=SOCKETS, served_name="a name")
    words = shlex.split(command.shell().replace("\\\n", " "))
    assert tuple(words[1:]) == command.arguments
    assert words[0] == "VLLM_NO_USAGE_STATS=1"


def test_any_patch_of_a_known_version_will_do():
    assert line(version="0.32.1").arguments == line().arguments


@pytest.mark.parametrize("version", ["0.31", "0.320", "1.0", "x"])
def test_a_version_that_was_not_tried_is_refused_with_those_that_were(version):
    with pytest.raises(InvalidInput, match=rf"vLLM {version} was asked for.*0\.32"):
        line(version=version)
