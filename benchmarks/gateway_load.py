"""Load for `benchmarks/gateway.py`: clients in a closed loop, and the processor time they cost.

    python benchmarks/gateway_load.py PORT CELL CLIENTS SECONDS PID...

Each client keeps one connection and one session, and sends its next request when the answer is
there. Prints JSON: requests, errors, latencies, chunks, and the CPU seconds of the processes named,
all over the window after a warm-up.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path

import uvloop

WARM_UP_S = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
_WORDS = "the keys and values of a conversation stay warm between its turns while it thinks "
_CLIENT_HEADERS = b"".join(
    b"%b: %b\r\n" % pair
    for pair in (  # what the official Python client sends
        (b"Accept", b"application/json"),
        (b"User-Agent", b"AsyncOpenAI/Python 2.3.0"),
        (b"X-Stainless-Lang", b"python"),
        (b"X-Stainless-Package-Version", b"2.3.0"),
        (b"X-Stainless-OS", b"Linux"),
        (b"X-Stainless-Arch", b"x64"),
        (b"X-Stainless-Runtime", b"CPython"),
        (b"X-Stainless-Runtime-Version", b"3.11.7"),
        (b"X-Stainless-Async", b"async:asyncio"),
        (b"x-stainless-retry-count", b"0"),
        (b"x-stainless-read-timeout", b"600"),
        (b"sec-fetch-mode", b"cors"),
        (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    )
)


def body_of(cell: str, client: int, number: int) -> bytes:
    """The same conversation per client, another last message per request."""
    turns = []
    if cell == "131kB":
        text = _WORDS * 38
        turns = [
            {"role": "assistant" if n % 2 else "user", "content": f"{client} {n} {text}"}
            for n in range(41)
        ]
    turns.append({"role": "user", "content": f"client {client} asks number {number:08d}"})
    body = {"model": "mock", "messages": turns, "max_tokens": 5, "temperature": 0.5}
    if cell == "stream":
        body["stream"] = True
    return json.dumps(body, separators=(",", ":")).encode()


def request_of(cell: str, port: int, client: int) -> tuple[bytes, int]:
    """Return a client's request, and where its number stands, to be patched."""
    body = body_of(cell, client, 0)
    headers = _CLIENT_HEADERS if cell == "18 headers" else b""
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
        b"Content-Type: application/json\r\nAuthorization: Bearer key-of-the-benchmark\r\n"
        b"%bx-session-id: sess-%05d\r\n"
        b"Content-Length: %d\r\n\r\n" % (port, headers, client, len(body))
    )
    whole = head + body
    return whole, whole.rindex(b"number 00000000") + 7


class Client(asyncio.Protocol):
    """Sends, waits, sends."""

    def __init__(self, run: "Run", request: bytes, number_at: int) -> None:
        self.run = run
        self.before, self.after = request[:number_at], request[number_at + 8 :]
        self.number = 0
        self.start_s = 0.0
        self.missing: int | None = None
        self.tail = b""
        self.head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.number += 1
        self.missing, self.head, self.tail = None, b"", b""
        self.start_s = time.perf_counter()
        data = b"%b%08d%b" % (self.before, self.number, self.after)
        self.transport.write(data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self.missing is None:
            data = self.head = self.head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return
            self.run.ttfb.append(time.perf_counter() - self.start_s)
            if not data.startswith(b"HTTP/1.1 200"):
                self.run.num_errors += 1
            at = data.lower().find(b"content-length:", 0, end)
            self.missing = -1 if at < 0 else int(data[at + 15 : data.find(b"\r", at)]) + end + 4
        if self.missing < 0:
            self.run.num_chunks += data.count(b"data: {")
            self.tail = (self.tail + data)[-7:]
            is_over = self.tail.endswith(b"\r\n0\r\n\r\n")
        else:
            self.missing -= len(data)
            is_over = self.missing <= 0
        if is_over:
            self.run.latencies.append(time.perf_counter() - self.start_s)
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's
        if not self.run.is_over:
            self.run.num_errors += 1


class Run:
    """What one cell gave."""

    def __init__(self) -> None:
        self.is_over = False
        self.reset()

    def reset(self) -> None:
        self.latencies: list[float] = []
        self.ttfb: list[float] = []
        self.num_errors = self.num_chunks = 0


def cpu_s(pids: list[int]) -> float:
    """User and system time of processes, all threads."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


async def measure(
    port: int, cell: str, clients: int, seconds: float, pids: list[int]
) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    run = Run()
    transports = []
    for client in range(clients):
        request, at = request_of(cell, port, client)
        transport, _ = await loop.create_connection(
            lambda request=request, at=at: Client(run, request, at),
            "127.0.0.1",
            port,  # type: ignore[misc]
        )
        transports.append(transport)
    await asyncio.sleep(WARM_UP_S if cell != "stream" else 1.2)
    errors_before = run.num_errors
    run.reset()
    start_s, before_s = time.perf_counter(), cpu_s(pids)
    await asyncio.sleep(seconds)
    used_s, elapsed_s = cpu_s(pids) - before_s, time.perf_counter() - start_s
    result = figures(run, used_s, elapsed_s, errors_before)
    run.is_over = True
    for transport in transports:
        transport.abort()
    return result


def figures(run: Run, used_s: float, elapsed_s: float, errors_before: int) -> dict[str, float]:
    num = len(run.latencies)
    waits = statistics.quantiles(run.latencies, n=100) if num > 1 else [0.0] * 99
    return {
        "requests": num,
        "errors": run.num_errors + errors_before,
        "per_s": num / elapsed_s,
        "p50_ms": waits[49] * 1e3,
        "p99_ms": waits[98] * 1e3,
        "ttfb_p50_ms": statistics.median(run.ttfb) * 1e3 if run.ttfb else 0.0,
        "cpu_us_per_request": used_s / num * 1e6 if num else 0.0,
        "cpu_us_per_chunk": used_s / run.num_chunks * 1e6 if run.num_chunks else 0.0,
    }


if __name__ == "__main__":
    _, port_, cell_, clients_, seconds_, *pids_ = sys.argv
    print(
        json.dumps(
            uvloop.run(
                measure(int(port_), cell_, int(clients_), float(seconds_), list(map(int, pids_)))
            )
        )
    )
