"""Settings of vLLM that break multi-turn reuse, or let it say too much, each with its remedy.

Each rule looks at one thing. Behaviour is that of vLLM 0.32, measured on its CPU build or, where
the rule says so, read in its source.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from warmturn.integrations.vllm_arguments import VllmArguments

__all__ = ["ServeWarning", "review"]

Effect = Literal["reuse", "isolation", "correctness", "start", "measuring"]

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_SALTLESS_CONNECTORS = frozenset({"ExampleConnector", "SharedStorageConnector"})


@dataclass(frozen=True, slots=True)
class ServeWarning:
    """One setting, what it does, and what to write instead."""

    setting: str
    effect: Effect
    """What suffers."""
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.why}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class _Line:
    arguments: VllmArguments
    environment: Mapping[str, str]
    on_cpu: bool

    @property
    def connectors(self) -> list[tuple[str, dict[str, Any]]]:
        """Name and extra configuration of the connector, or of each inside a MultiConnector."""
        config = self.arguments.json("--kv-transfer-config")
        inner = _objects(_object(config.get("kv_connector_extra_config")).get("connectors"))
        return [
            (str(one.get("kv_connector")), _object(one.get("kv_connector_extra_config")))
            for one in inner or [config]
        ]


def review(
    arguments: VllmArguments, environment: Mapping[str, str], *, on_cpu: bool
) -> tuple[ServeWarning, ...]:
    """Return what is wrong with a line, worst first. Raises `InvalidInput` for broken JSON."""
    line = _Line(arguments, environment, on_cpu)
    return tuple(warning for rule in _RULES for warning in rule(line))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _no_caching(line: _Line) -> Iterator[ServeWarning]:
    if "--no-enable-prefix-caching" in line.arguments.values:
        yield ServeWarning(
            "--no-enable-prefix-caching",
            "reuse",
            "every turn computes its whole prompt again",
            "leave it out",
        )


def _saltless_store(line: _Line) -> Iterator[ServeWarning]:
    for name, _ in line.connectors:
        if name in _SALTLESS_CONNECTORS:
            yield ServeWarning(
                f"kv_connector {name}",
                "isolation",
                "keys its store by token ids alone: a tenant is served what another computed",
                "take one that keys by vLLM's block hashes, in which the salt is",
            )


def _prompt_only_offload(line: _Line) -> Iterator[ServeWarning]:
    for name, extra in line.connectors:
        if name == "OffloadingConnector" and extra.get("offload_prompt_only", True) is not False:
            yield ServeWarning(
                "offload_prompt_only (default true)",
                "reuse",
                "generated tokens are not offloaded, so the next turn computes the last reply again",
                'add "offload_prompt_only": false to kv_connector_extra_config',
            )
    if "--kv-offloading-size" in line.arguments.values:
        yield ServeWarning(
            "--kv-offloading-size",
            "reuse",
            "offloads prompts only: the next turn computes the last reply again",
            "write the OffloadingConnector out in --kv-transfer-config, with "
            '"offload_prompt_only": false',
        )


def _tiers(line: _Line) -> Iterator[ServeWarning]:
    for _, extra in line.connectors:
        kinds = {str(tier.get("type")) for tier in _objects(extra.get("secondary_tiers"))}
        if "example" in kinds:
            yield ServeWarning(
                "secondary tier 'example'",
                "correctness",
                "reports loads without copying a byte: answers are computed from wrong K/V",
                "leave it out",
            )
        if "fs" in kinds:
            yield ServeWarning(
                "secondary tier 'fs'",
                "correctness",
                "has no checksum and no size limit: a flipped byte is served",
                "use it on a disk you trust and watch its size",
            )


def _no_cpu_offload(line: _Line) -> Iterator[ServeWarning]:
    if not line.on_cpu:
        return
    shipped = any(
        name == "OffloadingConnector" and "spec_module_path" not in extra
        for name, extra in line.connectors
    )
    if shipped or "--kv-offloading-size" in line.arguments.values:
        yield ServeWarning(
            "the shipped offload",
            "start",
            "needs CUDA or XPU and keeps a CPU server from starting",
            "leave it out, or name an offload spec that copies on the CPU",
        )


def _cpu_block_size(line: _Line) -> Iterator[ServeWarning]:
    text = line.arguments.text("--block-size")
    if line.on_cpu and text is not None and text.isdigit() and int(text) % 32:
        yield ServeWarning(
            f"--block-size {text}",
            "start",
            "a CPU server takes multiples of 32 only (No common block size)",
            "write --block-size 32",
        )


def _events(line: _Line) -> Iterator[ServeWarning]:
    config = line.arguments.json("--kv-events-config")
    if not config:
        return
    if not config.get("enable_kv_cache_events"):
        yield ServeWarning(
            "--kv-events-config",
            "measuring",
            "publishes nothing as long as enable_kv_cache_events is not true",
            'add "enable_kv_cache_events": true',
        )
    if not config.get("replay_endpoint"):
        yield ServeWarning(
            "--kv-events-config without replay_endpoint",
            "measuring",
            "a reader that misses a batch, or starts later, never knows the whole cache again",
            'add "replay_endpoint"',
        )
    yield from _event_endpoint(str(config.get("endpoint", "tcp://*:5557")))


def _event_endpoint(endpoint: str) -> Iterator[ServeWarning]:
    if not endpoint.startswith("tcp://"):
        return
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    if host in {"*", "[::]", "::"}:
        yield ServeWarning(
            f"event endpoint {endpoint}",
            "isolation",
            "whoever reaches the port reads prompts and salts in clear",
            "use ipc:// on one machine, or close the port to all but the gateway",
        )
    else:
        yield ServeWarning(
            f"event endpoint {endpoint}",
            "measuring",
            "a host in it makes vLLM connect, not listen: the reader has to bind",
            f"use ipc:// or tcp://*:{endpoint.rpartition(':')[2]}, or bind the reader",
        )


def _random_hashes(line: _Line) -> Iterator[ServeWarning]:
    algorithm = line.arguments.text("--prefix-caching-hash-algo") or "sha256"
    if algorithm.startswith("xxhash") and not line.environment.get("PYTHONHASHSEED"):
        yield ServeWarning(
            f"--prefix-caching-hash-algo {algorithm}",
            "reuse",
            "hashes differ from process to process, so a store is useless after a restart and "
            "between replicas",
            "set PYTHONHASHSEED to the same value everywhere, or take sha256",
        )


def _open_doors(line: _Line) -> Iterator[ServeWarning]:
    if line.environment.get("VLLM_SERVER_DEV_MODE") == "1":
        yield ServeWarning(
            "VLLM_SERVER_DEV_MODE=1",
            "isolation",
            "opens endpoints for tests, /reset_prefix_cache among them, to every client",
            "unset it where others reach the server",
        )
    host = line.arguments.text("--host")
    if host not in _LOOPBACK and "--api-key" not in line.arguments.values:
        yield ServeWarning(
            f"--host {host or '(all interfaces)'}",
            "isolation",
            "clients can reach it past the gateway, with salts of their own choice",
            "bind 127.0.0.1, or close the port to all but the gateway",
        )


def _unreadable(line: _Line) -> Iterator[ServeWarning]:
    if not line.arguments.is_on("--enable-prompt-tokens-details"):
        yield ServeWarning(
            "no --enable-prompt-tokens-details",
            "measuring",
            "answers do not say what was cached",
            "add it",
        )
    if "--max-log-len" in line.arguments.values:
        yield ServeWarning(
            "--max-log-len",
            "measuring",
            "cuts prompts and ids in logs without a sign",
            "leave it out of logs that are to be checked",
        )


def _responses(line: _Line) -> Iterator[ServeWarning]:
    if line.environment.get("VLLM_ENABLE_RESPONSES_API_STORE") == "1":
        yield ServeWarning(
            "VLLM_ENABLE_RESPONSES_API_STORE=1",
            "reuse",
            "conversations live in one replica's memory as text: a reply that was cut off is "
            "rendered with an end it did not have (source)",
            "pin such conversations to their replica",
        )


_RULES: tuple[Callable[[_Line], Iterator[ServeWarning]], ...] = (
    _no_caching,
    _saltless_store,
    _tiers,
    _no_cpu_offload,
    _cpu_block_size,
    _prompt_only_offload,
    _random_hashes,
    _events,
    _open_doors,
    _unreadable,
    _responses,
)
