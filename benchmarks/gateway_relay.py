"""The least a relay can do, for `benchmarks/gateway.py`: bytes in, bytes out, round robin.

    python benchmarks/gateway_relay.py PORT UPSTREAM_PORT...

Finds the ends of requests and answers by their lengths or last chunk, keeps connections, and does
nothing else: no parser, no limit, no time-out, no back-pressure. A floor, not a gateway.
"""

import asyncio
import itertools
import sys

import uvloop


class Upstream(asyncio.Protocol):
    """One kept connection to a replica."""

    def __init__(self, idle: "list[Upstream]") -> None:
        self.idle = idle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def start(self, client: "Client", data: bytes) -> None:
        self.client, self.missing, self.tail, self.head = client, None, b"", b""
        self.transport.write(data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self.client.transport.is_closing():
            self.client.transport.write(data)  # type: ignore[attr-defined]
        if self.missing is None:
            data = self.head = self.head + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return
            self.missing = length_of(data, end)
            if self.missing is not None:
                self.missing += end + 4
            else:
                self.missing = -1
        if self.missing < 0:
            self.tail = (self.tail + data)[-7:]
            is_over = self.tail.endswith(b"\r\n0\r\n\r\n")
        else:
            self.missing -= len(data)
            is_over = self.missing == 0
        if is_over:
            self.idle.append(self)


class Client(asyncio.Protocol):
    """One client's connection; one request at a time."""

    def __init__(self, relay: "Relay") -> None:
        self.relay = relay
        self.waiting = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        end = self.waiting.find(b"\r\n\r\n")
        if end < 0 or len(self.waiting) < end + 4 + (length_of(self.waiting, end) or 0):
            return
        request, self.waiting = bytes(self.waiting), bytearray()
        self.relay.send(self, request)


class Relay:
    """Round robin over replicas."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = itertools.cycle(ports)
        self.idle: dict[int, list[Upstream]] = {port: [] for port in ports}
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, client: Client, request: bytes) -> None:
        port = next(self.ports)
        if self.idle[port]:
            self.idle[port].pop().start(client, request)
        else:
            task = asyncio.get_running_loop().create_task(self.connect(port, client, request))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def connect(self, port: int, client: Client, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(
            lambda: Upstream(self.idle[port]), "127.0.0.1", port
        )
        upstream.start(client, request)


def length_of(data: bytes | bytearray, end: int) -> int | None:
    """Return the Content-Length in a head that ends at `end`."""
    head = bytes(data[:end]).lower()
    at = head.find(b"content-length:")
    if at < 0:
        return None
    stop = head.find(b"\r", at)
    return int(head[at + 15 : stop if stop > 0 else None])


async def main(port: int, upstreams: list[int]) -> None:
    relay = Relay(upstreams)
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Client(relay), "127.0.0.1", port, backlog=1024)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
