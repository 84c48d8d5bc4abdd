"""Real vLLM servers for the lane, started with the line that `warmturn vllm command` gives."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from warmturn.integrations import EventSockets, ServeUse, TierUse, serve_command

INSIDE = Path(__file__).parent / "inside"
SOURCE = Path(__file__).parents[2] / "src"
START_S = 300
"""A first start compiles thousands of files and may share its core; later ones take 25 s."""

LANE_OPTIONS = (
    *("--dtype", "float32"),  # a hit and a miss are equal bit for bit only in float32
    *("--max-model-len", "1056"),
    *("--scheduler-cls", "watched_scheduler.WatchedScheduler"),
)


@dataclass(slots=True)
class Server:
    """One running server, and where it is watched."""

    url: str
    model: str
    folder: Path
    process: "subprocess.Popen[bytes]"
    begin: Callable[..., "Server"]
    """Starts it again as it was; keywords of `start` change that."""

    @property
    def endpoint(self) -> str:
        """Live KV events."""
        return f"ipc://{self.folder}/kv.sock"

    @property
    def replay_endpoint(self) -> str:
        """KV events again."""
        return f"ipc://{self.folder}/replay.sock"

    @property
    def log(self) -> str:
        """What it has written so far."""
        return (self.folder / "log").read_text(errors="replace")

    def pool(self) -> dict[str, Any]:
        """Ask for one more step, and return what the block pool held after it."""
        wanted, file = self.folder / "pool.wanted", self.folder / "pool.json"
        file.unlink(missing_ok=True)
        wanted.touch()
        self.post("/v1/completions", prompt=[1, 2, 3], max_tokens=2)  # fills no block
        wait_for(file.exists, 30, "the pool was not written")
        wanted.unlink()
        content: dict[str, Any] = json.loads(file.read_text())
        return content

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """Send a greedy request for this server's model; return its JSON."""
        answer = httpx.post(
            self.url + path, json={"model": self.model, "temperature": 0, **body}, timeout=120
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def chat(self, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """Send a chat; the answer has prompt and generated ids."""
        body = {"max_tokens": 16, "return_token_ids": True, **fields}
        return self.post("/v1/chat/completions", messages=messages, **body)

    def metrics(self) -> str:
        """Return the page of metrics."""
        return httpx.get(f"{self.url}/metrics", timeout=30).text

    def empty(self) -> None:
        """Forget everything cached; the events say so with the next step."""
        assert httpx.post(f"{self.url}/reset_prefix_cache", timeout=30).status_code == 200

    def stop(self) -> None:
        """End it with its children."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(10)


def start(
    environment: Path,
    model: Path,
    folder: Path,
    *,
    core: int,
    num_blocks: int,
    options: Sequence[str] = (),
    variables: dict[str, str] | None = None,
    port: int | None = None,
    tiers: TierUse | None = None,
) -> Server:
    """Start a server bound to one core; it is not ready yet, see `wait_until_ready`.

    The folder's path must be short: sockets in it have at most 107 characters.
    """
    port = port or free_port()
    use = ServeUse(
        model=str(model),
        served_name="smol",
        port=port,
        on_cpu=True,
        token_ids=True,
        cache_metrics=True,
        events=EventSockets(f"ipc://{folder}/kv.sock", f"ipc://{folder}/replay.sock", "kv"),
        tiers=tiers,
        extra=("--num-gpu-blocks-override", str(num_blocks), *LANE_OPTIONS, *options),
    )
    command = serve_command(use)
    own = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_SERVER_DEV_MODE": "1",  # /reset_prefix_cache
        "VLLM_CPU_OMP_THREADS_BIND": str(core),
        "WARMTURN_POOL_FILE": str(folder / "pool.json"),
        "PYTHONPATH": f"{INSIDE}:{SOURCE}",
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
    }
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [str(environment / "bin" / "vllm"), *command.arguments[1:]],
            env=os.environ | dict(command.environment) | own | (variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    again = partial(start, environment, model, folder, core=core, num_blocks=num_blocks, port=port,
                    variables=variables, tiers=tiers)  # fmt: skip
    return Server(f"http://127.0.0.1:{port}", "smol", folder, process, again)


def restart(server: Server, **changes: Any) -> None:
    """Stop it and start it at the same address, without its own `options`; wait until it is ready."""
    server.stop()
    begun = server.begin(**changes)
    server.process, server.begin = begun.process, begun.begin
    wait_until_ready(server)


def wait_until_ready(server: Server) -> None:
    """Wait for `/health`; fail with the end of the log when the server ends before."""

    def is_ready() -> bool:
        assert server.process.poll() is None, f"vLLM ended:\n{server.log[-3000:]}"
        try:
            return httpx.get(f"{server.url}/health", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    wait_for(is_ready, START_S, "vLLM did not start", every_s=0.5)


def wait_for(condition: Any, seconds: float, what: str, *, every_s: float = 0.02) -> None:
    """Wait until `condition()` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} within {seconds:.0f} s"
        time.sleep(every_s)


def free_port() -> int:
    """Return a port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
