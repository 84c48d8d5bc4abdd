"""Servers that stop when whoever started them is gone, however it went."""

import os
import signal
import threading

__all__ = ["stop_when_stdin_ends"]

_STDIN = 0


def stop_when_stdin_ends() -> None:
    """Send this process SIGTERM once the other end of its standard input is closed."""
    threading.Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    # Not `sys.stdin`: a thread that holds its lock when the interpreter ends makes that abort.
    while os.read(_STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
