"""An engine or a gateway in a process of its own, for as long as a measurement takes."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warmturn.errors import PeerError

__all__ = ["running_engine", "running_gateway"]


@contextmanager
def running_engine(*options: str, timeout_s: float = 600.0) -> Iterator[dict[str, Any]]:
    """Start `warmturn engine OPTIONS` on a free port; stop it when the block ends.

    Yields what the engine says of itself (`--json`): `url`, `model`, `pid`, sizes. The time-out
    covers the first download of the model. Should this process die, the engine stops too: it
    watches its standard input. Raises `PeerError` with the engine's last line when it does
    not start.
    """
    with _running("engine", "--port", "0", *options, timeout_s=timeout_s) as facts:
        yield facts


@contextmanager
def running_gateway(*options: str, timeout_s: float = 600.0) -> Iterator[dict[str, Any]]:
    """Start `warmturn serve OPTIONS` on free ports; stop it when the block ends.

    Yields what the gateway says of itself (`--json`): `url`, `admin_url`, `replicas` and more.
    Otherwise like `running_engine`.
    """
    ports = ("--port", "0", "--admin-port", "0")
    with _running("serve", *ports, *options, timeout_s=timeout_s) as facts:
        yield facts


@contextmanager
def _running(name: str, *options: str, timeout_s: float) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        ready, log_path = Path(folder) / "ready.json", Path(folder) / "said.log"
        command = [sys.executable, "-m", "warmturn", name, "--stop-with-stdin"]
        with log_path.open("w") as log:
            process = subprocess.Popen(  # noqa: S603 - our own command line
                [*command, *options, "--json", str(ready)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        try:
            yield _wait_until_ready(name, process, ready, log_path, timeout_s)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _wait_until_ready(
    name: str, process: "subprocess.Popen[bytes]", ready: Path, log_path: Path, timeout_s: float
) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if ready.exists() and (text := ready.read_text()).endswith("}\n"):
            facts: dict[str, Any] = json.loads(text)
            return facts
        if process.poll() is not None:
            last = log_path.read_text().strip().splitlines()[-1:] or ["(it said nothing)"]
            raise PeerError(f"warmturn {name} did not start: {last[0].removeprefix('warmturn: ')}")
        time.sleep(0.05)
    raise PeerError(f"warmturn {name} was not ready after {timeout_s:.0f} s")
