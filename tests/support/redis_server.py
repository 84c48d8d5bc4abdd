"""A Redis of the tests' own: on a socket file, in memory only, gone with the test session."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest

NOT_RUN = "redis-server is not installed (Debian: redis-server): no test of the Redis tier was run"


class RedisServer:
    """One server process; it can be stopped, frozen and started again on the same socket."""

    def __init__(self, folder):
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}?timeout=0.5"
        self._folder = folder
        self._process = None

    def start(self):
        options = ["--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"]
        options += ["--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        self._process = subprocess.Popen(
            ["redis-server", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(2000):
            if self.socket.exists():
                return
            time.sleep(0.005)
        raise AssertionError("redis-server did not start")

    def stop(self):
        if self._process is not None:
            self.freeze(frozen=False)
            self._process.terminate()
            self._process.wait(timeout=20)
            self._process = None

    def freeze(self, *, frozen=True):
        """Let the server take connections and never answer."""
        os.kill(self._process.pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def client(self):
        import redis

        return redis.Redis(unix_socket_path=str(self.socket))


@contextmanager
def redis_server(folder):
    """Start a server in `folder`, or skip the test."""
    if shutil.which("redis-server") is None:
        pytest.skip(NOT_RUN)
    pytest.importorskip("redis", reason="the redis package is not installed: " + NOT_RUN)
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
