"""The gateway beside vllm-router and sglang-router: processor time per request and per chunk.

    make bench-gateway [ARGS="--json FILE --rounds 3 --seconds 2 --peers DIR"]

All stand before the same four replicas that do no work (`gateway_mock.py`), in one run, measured in
turns: warmturn as `warmturn serve` runs it, with affinity, sessions, salts, usage and metrics; the
peers with their cheapest policy, round robin; and a bare relay (`gateway_relay.py`) as the floor.
The figure is user and system time of all of a proxy's processes, divided by the requests (or the
streamed events) in the window. The peers live in an environment of their own, made in a temporary
folder, or kept in `--peers DIR` for the next run.
"""

import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import track
from rich.table import Table

import output

PEERS = ("vllm-router==0.1.17", "sglang-router==0.3.2")
PEER_NAMES = ("vllm-router", "sglang-router")
OURS, FLOOR = "warmturn", "bare relay"
NUM_REPLICAS = 4
CELLS = (
    ("small", 16),
    ("small", 64),
    ("18 headers", 16),
    ("18 headers", 64),
    ("131kB", 16),
    ("131kB", 64),
    ("stream", 64),
)
"""Body and clients; a stream has 100 events at 10 ms."""
TARGET_RATIO, AIMED_RATIO = 1.0, 0.75
START_S = 60.0
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Proxy:
    """One program to measure."""

    name: str
    command: Sequence[str]
    port: int


def main() -> int:
    """Measure, print, and return 0 when the targets are met."""
    parser = output.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each window")
    parser.add_argument("--peers", type=Path, help="keep the peers' environment here")
    parser.add_argument("--cell", action="append", help="only these bodies: small, 131kB, stream …")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=COMMAND", help="{port} and {replicas}"
    )
    options = parser.parse_args()
    cells = [cell for cell in CELLS if options.cell is None or cell[0] in options.cell]
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        python = peers_python(options.peers or scratch / "peers")
        ports = free_ports(NUM_REPLICAS)
        start(stack, [sys.executable, str(_HERE / "gateway_mock.py"), *map(str, ports)], ports[-1])
        proxies = the_proxies(python, scratch, ports, options.also)
        pids = {p.name: start(stack, p.command, p.port) for p in proxies}
        samples = measure(proxies, pids, cells, options.rounds, options.seconds)
    result = judge(samples, options.rounds)
    print_tables(result)
    output.write(result, options.json)
    return 0 if result["is_met"] else 1


def peers_python(directory: Path) -> Path:
    """Return the interpreter of an environment that has the peers; make it on first use."""
    python = directory / "bin" / "python"
    if not python.exists():
        output.console.print(f"installing {', '.join(PEERS)} into an environment of their own")
        venv.create(directory, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS]
        subprocess.run(list(map(str, pip)), check=True)
    return python


def the_proxies(
    python: Path, scratch: Path, ports: Sequence[int], also: Sequence[str]
) -> list[Proxy]:
    """Return what is measured, each on ports of its own."""
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    a, b, c, *others = free_ports(6 + len(also))
    metrics_a, metrics_b, admin, *extra = others
    vllm = [str(python.with_name("vllm-router")), "--host", "127.0.0.1", "--port", str(a)]
    vllm += ["--worker-urls", *urls, "--policy", "round_robin", "--log-level", "error"]
    vllm += ["--prometheus-port", str(metrics_a), "--worker-startup-check-interval", "1"]
    vllm += ["--max-concurrent-requests", "1024"]
    sglang = [str(python), "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
    sglang += ["--port", str(b), "--worker-urls", *urls, "--policy", "round_robin"]
    sglang += ["--prometheus-port", str(metrics_b), "--prometheus-host", "127.0.0.1"]
    sglang += ["--log-level", "error", "--worker-startup-check-interval", "1"]
    relay = [sys.executable, str(_HERE / "gateway_relay.py"), str(c), *map(str, ports)]
    named = [Proxy("vllm-router", vllm, a), Proxy("sglang-router", sglang, b)]
    named.append(Proxy(FLOOR, relay, c))
    for text, port in zip(also, extra, strict=False):
        name, _, command = text.partition("=")
        filled = command.format(port=port, replicas=" ".join(map(str, ports)))
        named.append(Proxy(name, shlex.split(filled), port))
    if OURS not in {proxy.name for proxy in named}:
        named.append(serve(scratch, urls, admin))
    return named


def serve(scratch: Path, urls: Sequence[str], admin_port: int) -> Proxy:
    """Return our command, with everything on that a deployment has."""
    (port,) = free_ports(1)
    key = scratch / "salt.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    command = [sys.executable, "-m", "warmturn", "serve", "--port", str(port)]
    command += ["--admin-port", str(admin_port), "--policy", "affinity"]
    command += ["--identity-header", "authorization", "--identity-scheme", "bearer"]
    command += ["--salt-key-file", str(key), "--anonymous", "shared"]
    for url in urls:
        command += ["--replica", url]
    return Proxy(OURS, command, port)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def start(stack: ExitStack, command: Sequence[str], port: int) -> int:
    """Start a program, wait until it answers a chat, and stop it with the benchmark."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(stop, process)
    deadline = time.monotonic() + START_S
    body = b'{"model":"mock","messages":[{"role":"user","content":"are you there?"}]}'
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            headers = {"content-type": "application/json"}
            request = urllib.request.Request(url, body, headers)
            with urllib.request.urlopen(request, timeout=2) as answer:  # noqa: S310
                if answer.status == 200:
                    return process.pid
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"this did not answer within {START_S:.0f} s: {shlex.join(command)}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End what `start` began."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def process_tree(pid: int) -> list[int]:
    """Return a process and all below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in children for below in process_tree(int(child)))]


def measure(
    proxies: Sequence[Proxy],
    pids: dict[str, int],
    cells: Sequence[tuple[str, int]],
    num_rounds: int,
    seconds: float,
) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Run every cell of every round through all proxies, one after the other."""
    samples: dict[str, dict[str, list[dict[str, float]]]] = {}
    runs = [
        (cell, clients, proxy)
        for _ in range(num_rounds)
        for cell, clients in cells
        for proxy in proxies
    ]
    for cell, clients, proxy in track(runs, "cells", console=output.console):
        tree = process_tree(pids[proxy.name])
        load = [sys.executable, str(_HERE / "gateway_load.py"), str(proxy.port), cell]
        load += [str(clients), str(seconds), *map(str, tree)]
        done = subprocess.run(load, stdout=subprocess.PIPE, text=True, check=True)
        name = f"{cell}, {clients} clients"
        samples.setdefault(name, {}).setdefault(proxy.name, []).append(json.loads(done.stdout))
    return samples


def judge(samples: dict[str, dict[str, list[dict[str, float]]]], num_rounds: int) -> dict[str, Any]:
    """Return medians with spreads, ratios to the cheaper peer and to the floor, and the verdict."""
    cells: dict[str, Any] = {}
    for cell, by_proxy in samples.items():
        unit = "cpu_us_per_chunk" if cell.startswith("stream") else "cpu_us_per_request"
        proxies = {name: figures(runs, unit) for name, runs in by_proxy.items()}
        ours = proxies[OURS]["cpu_us"]["median"]
        peers = [proxies[name]["cpu_us"]["median"] for name in PEER_NAMES if name in proxies]
        cells[cell] = {
            "unit": unit,
            "proxies": proxies,
            "ratio_to_cheaper_peer": ours / min(peers),
            "ratio_to_floor": ours / proxies[FLOOR]["cpu_us"]["median"],
        }
    is_met = all(
        cell["ratio_to_cheaper_peer"] <= TARGET_RATIO and cell["proxies"][OURS]["errors"] == 0
        for cell in cells.values()
    )
    return {"peers": list(PEERS), "num_rounds": num_rounds, "cells": cells, "is_met": is_met}


def figures(runs: Sequence[dict[str, float]], unit: str) -> dict[str, Any]:
    """Return one proxy's figures in one cell."""
    values = [run[unit] for run in runs]
    return {
        "cpu_us": {"median": statistics.median(values), "low": min(values), "high": max(values)},
        "errors": sum(run["errors"] for run in runs),
        "per_s": statistics.median(run["per_s"] for run in runs),
        "p99_ms": statistics.median(run["p99_ms"] for run in runs),
        "ttfb_p50_ms": statistics.median(run["ttfb_p50_ms"] for run in runs),
    }


def print_tables(result: dict[str, Any]) -> None:
    """Print the processor time of all, and how ours stands to the cheaper peer."""
    names = list(next(iter(result["cells"].values()))["proxies"])
    table = Table("CPU us per request or chunk", *names, "to cheaper peer", "to floor", box=None)
    for cell, found in result["cells"].items():
        row = []
        for name in names:
            cpu = found["proxies"][name]["cpu_us"]
            wrong = found["proxies"][name]["errors"]
            shown = f"{cpu['median']:.0f} ({cpu['low']:.0f}-{cpu['high']:.0f})"
            row.append(shown if not wrong else f"{shown}, {wrong:.0f} errors")
        ratio, floor = found["ratio_to_cheaper_peer"], found["ratio_to_floor"]
        table.add_row(cell, *row, f"{ratio:.2f}", f"{floor:.2f}")
    output.console.print(table)
    worst = max(found["ratio_to_cheaper_peer"] for found in result["cells"].values())
    output.console.print(
        f"worst ratio to the cheaper peer {worst:.2f}: at most {TARGET_RATIO} "
        f"{output.verdict(met=result['is_met'])}, aimed at {AIMED_RATIO} "
        f"{output.verdict(met=worst <= AIMED_RATIO)}"
    )


if __name__ == "__main__":
    sys.exit(main())
