"""The `vllm serve` line for a use, option by option, each with its reason.

    use ──▶ options we set ─┐
    user's own options ─────┴──▶ one line (the user's win) ──▶ review ──▶ warnings

Option names are those of vLLM 0.32, seen on its CPU build; other versions are refused, since an
option that a version does not know keeps it from starting.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from warmturn.errors import InvalidInput
from warmturn.integrations.vllm_arguments import VllmArguments
from warmturn.integrations.vllm_warnings import ServeWarning, review

__all__ = [
    "KNOWN_VERSIONS",
    "EventSockets",
    "ServeCommand",
    "ServeOption",
    "ServeUse",
    "TierUse",
    "serve_command",
]

KNOWN_VERSIONS = ("0.32",)
"""Versions whose options and behaviour were tried."""
CPU_BLOCK_TOKENS = 32
"""The least that vLLM's CPU attention takes; its default there is 128."""

_VARIABLES = {"VLLM_NO_USAGE_STATS": "1"}
"""Nothing is reported to anybody."""


@dataclass(frozen=True, slots=True)
class EventSockets:
    """Where KV events are published. They carry prompts and salts in clear."""

    endpoint: str
    """`ipc://` and `tcp://*:PORT` make vLLM listen; `tcp://HOST:PORT` makes it call a listener."""
    replay_endpoint: str | None
    topic: str = ""


@dataclass(frozen=True, slots=True)
class TierUse:
    """Our tiers inside vLLM, written as `stores` reads them."""

    host: str
    """Size of host memory; every other tier passes through it."""
    disk: str | None = None
    """`PATH:SIZE`"""
    shared: str | None = None
    """URL of a store that several replicas use."""


@dataclass(frozen=True, slots=True)
class ServeUse:
    """What the server is for."""

    model: str
    """Directory or hub id, as vLLM takes it."""
    served_name: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    version: str = KNOWN_VERSIONS[0]
    on_cpu: bool = False
    events: EventSockets | None = None
    cache_metrics: bool = False
    """Measure life, idleness and reuse of every block: the engine's own eviction horizon."""
    token_ids: bool = False
    """Open the endpoints that take and give token ids (exact continuation)."""
    tiers: TierUse | None = None
    extra: tuple[str, ...] = ()
    """The user's own options; they replace ours of the same name."""


@dataclass(frozen=True, slots=True)
class ServeOption:
    """One option that was set, and why."""

    words: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """A command line, ready to run."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    options: tuple[ServeOption, ...] = field(default=())
    """Those of ours that are on the line."""
    warnings: tuple[ServeWarning, ...] = ()

    def shell(self) -> str:
        """Return it as a reader would type it, one option per line."""
        names = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        lines = [" ".join([*names, *map(shlex.quote, self.arguments[:3])])]
        for word in self.arguments[3:]:
            if word.startswith("--"):
                lines.append(shlex.quote(word))
            else:
                lines[-1] += f" {shlex.quote(word)}"
        return " \\\n  ".join(lines)


def serve_command(use: ServeUse, environment: Mapping[str, str] | None = None) -> ServeCommand:
    """Return the line for `use`, to be run in an environment with the variables `environment`.

    Raises `InvalidInput` for a version that was not tried, or options that are no options.
    """
    _check_version(use.version)
    theirs = VllmArguments.parse(use.extra)
    ours = tuple(option for option in _options(use) if not theirs.has(option.words[0]))
    words = [word for option in ours for word in option.words]
    arguments = ("vllm", "serve", use.model, *words, *use.extra)
    warnings = review(VllmArguments.parse(arguments[3:]), environment or {}, on_cpu=use.on_cpu)
    return ServeCommand(_VARIABLES, arguments, ours, warnings)


def _check_version(version: str) -> None:
    if not any(version == known or version.startswith(f"{known}.") for known in KNOWN_VERSIONS):
        raise InvalidInput(
            f"vLLM {version} was asked for; options are known for {', '.join(KNOWN_VERSIONS)}. "
            f"Install one of these, or take the line for --vllm-version {KNOWN_VERSIONS[-1]} and "
            "compare it with `vllm serve --help=all`"
        )


def _options(use: ServeUse) -> Iterator[ServeOption]:
    name = () if use.served_name is None else ("--served-model-name", use.served_name)
    if name:
        yield ServeOption(name, "the name clients send")
    yield ServeOption(("--host", use.host), "who may reach it; it asks for no password by itself")
    yield ServeOption(("--port", str(use.port)), "where it listens")
    yield ServeOption(("--enable-prefix-caching",), "later turns find what earlier ones computed")
    yield ServeOption(
        ("--enable-prompt-tokens-details",), "answers say how much was cached: cached_tokens"
    )
    if use.cache_metrics:
        yield ServeOption(
            ("--kv-cache-metrics",), "/metrics tells how long blocks live and lie idle"
        )
        yield ServeOption(("--kv-cache-metrics-sample", "1.0"), "of every block, not of one in 100")
    if use.token_ids:
        yield ServeOption(("--enable-scale-out",), "opens /inference/v1/generate: ids in, ids out")
    if use.events is not None:
        yield ServeOption(
            ("--kv-events-config", _events_json(use.events)), "tells which blocks it holds"
        )
    if use.tiers is not None:
        yield ServeOption(
            ("--kv-transfer-config", _tiers_json(use.tiers)),
            "keeps evicted blocks, replies included; warmturn must be installed beside vLLM",
        )
    if use.on_cpu:
        yield from _cpu_options()


def _cpu_options() -> Iterator[ServeOption]:
    yield ServeOption(
        ("--block-size", str(CPU_BLOCK_TOKENS)),
        "the smallest block there: least is lost at its end",
    )
    yield ServeOption(("--enforce-eager",), "starts in half a minute instead of two")
    yield ServeOption(
        ("--gpu-memory-utilization", "0.2"),
        "compared with free memory at start even on CPU, where it decides nothing else",
    )


def _events_json(sockets: EventSockets) -> str:
    config: dict[str, object] = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": sockets.endpoint,
    }
    if sockets.replay_endpoint is not None:
        config["replay_endpoint"] = sockets.replay_endpoint
    if sockets.topic:
        config["topic"] = sockets.topic
    return json.dumps(config, separators=(",", ":"))


def _tiers_json(tiers: TierUse) -> str:
    extra: dict[str, object] = {
        "spec_name": "WarmturnSpec",
        "spec_module_path": "warmturn.integrations.vllm_offload",
        "host_tier": tiers.host,
        "offload_prompt_only": False,
    }
    if tiers.disk is not None:
        extra["disk_tier"] = tiers.disk
    if tiers.shared is not None:
        extra["shared_tier"] = tiers.shared
    config = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }
    return json.dumps(config, separators=(",", ":"))
