"""Background load from a process of its own: Poisson arrivals that do not wait for answers.

    python -m warmturn.probe.background_load URL MODEL RATE WORDS TOKENS

Each request is new to every cache. It ends when its standard input is closed, and then prints one
line of JSON: how many were sent, answered and refused, and how late the generator itself was.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from warmturn.errors import InvalidInput, PeerError
from warmturn.probe.client import Client
from warmturn.probe.probe_turns import ProbeText, prime

__all__ = ["LoadSpec", "LoadTally", "read_load", "running_load"]

_MOST_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """What is sent beside the probes."""

    requests_per_s: float
    num_words: int = 200
    reply_tokens: int = 32


@dataclass(slots=True)
class LoadTally:
    """What became of it; filled when the load ends."""

    figures: dict[str, Any] = field(default_factory=dict)


def read_load(text: str) -> LoadSpec | None:
    """Return the load of `--load`: `none` or `poisson:RATE`. Raises `InvalidInput`."""
    if text == "none":
        return None
    kind, _, rate = text.partition(":")
    try:
        requests_per_s = float(rate)
    except ValueError:
        requests_per_s = 0.0
    if kind != "poisson" or not 0 < requests_per_s <= 10_000:
        raise InvalidInput(
            f"--load {text[:40]!r} is no load; write none, or poisson:2 for 2 per second"
        )
    return LoadSpec(requests_per_s)


@contextmanager
def running_load(url: str, model: str, spec: LoadSpec) -> Iterator[LoadTally]:
    """Run the load for as long as the block lasts; the tally is filled at its end."""
    tally = LoadTally()
    arguments = [url, model, spec.requests_per_s, spec.num_words, spec.reply_tokens]
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "warmturn.probe.background_load", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield tally
    finally:
        try:
            out, _ = process.communicate(timeout=60)
            tally.figures = json.loads(out or "{}")
        except (subprocess.TimeoutExpired, ValueError):
            process.kill()
            process.communicate()


def send_load(url: str, model: str, spec: LoadSpec, stop: threading.Event) -> dict[str, Any]:
    """Send until `stop`; return the tally. What cannot be sent at once is counted and dropped."""
    rng = random.Random()  # noqa: S311 - arrival times, no secret
    text = ProbeText.of_words(spec.num_words, reply_tokens=spec.reply_tokens)
    free = threading.BoundedSemaphore(_MOST_AT_ONCE)
    lock = threading.Lock()
    tally = {"sent": 0, "answered": 0, "failed": 0, "dropped": 0, "worst_lag_s": 0.0}

    def count(name: str) -> None:
        with lock:
            tally[name] += 1

    def one() -> None:
        try:
            with Client(url, timeout_s=120) as client:
                prime(client, text, model=model)
            count("answered")
        except PeerError:
            count("failed")
        finally:
            free.release()

    due = start = time.monotonic()
    with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        while True:
            due += rng.expovariate(spec.requests_per_s)
            if stop.wait(max(0.0, due - time.monotonic())):
                break
            tally["worst_lag_s"] = max(tally["worst_lag_s"], time.monotonic() - due)
            if free.acquire(blocking=False):
                count("sent")
                pool.submit(one)
            else:
                count("dropped")
    return {**tally, "seconds": time.monotonic() - start}


def _main() -> None:
    url, model, rate, words, tokens = sys.argv[1:]
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()  # ends when whoever started this ends, however that happens
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    spec = LoadSpec(float(rate), int(words), int(tokens))
    sys.stdout.write(json.dumps(send_load(url, model, spec, stop)))


if __name__ == "__main__":
    _main()
