"""A Redis in a process of its own, for as long as a demonstration or a measurement takes."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warmturn.errors import PeerError

__all__ = ["has_redis", "running_redis"]


def has_redis() -> bool:
    """Tell whether there is a server to start and a client to talk to it."""
    try:
        import redis  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError:
        return False
    return shutil.which("redis-server") is not None


@contextmanager
def running_redis(*, timeout_s: float = 20.0) -> Iterator[str]:
    """Start a Redis that keeps everything in memory; yield its URL, and stop it at the end.

    It listens on a socket file only. Raises `PeerError` when it does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"]
        options += ["--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen(  # noqa: S603 - no foreign word in it
            [shutil.which("redis-server") or "redis-server", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + timeout_s
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise PeerError("redis-server did not start; try it by hand")
                time.sleep(0.01)
            yield f"unix://{socket}"
        finally:
            process.terminate()
            process.wait(timeout=timeout_s)
