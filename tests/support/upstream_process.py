"""A replica in a process of its own, so that it can be killed: `python upstream_process.py PORT LOG`.

Answers every POST after a millisecond with its `nonce` and its process id, as a stream if asked;
writes one byte to LOG for each request, which survives being killed.
"""

import asyncio
import json
import os
import sys

import httptools


class Replica(asyncio.Protocol):
    def __init__(self, log):
        self.log = log
        self.body = b""
        self.parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_body(self, piece):
        self.body += piece

    def on_message_complete(self):
        os.write(self.log, b"x")
        body, self.body = json.loads(self.body), b""
        answer = json.dumps({"id": "a", "nonce": body["nonce"], "pid": os.getpid()}).encode()
        loop = asyncio.get_running_loop()
        if body.get("stream"):
            event = b"data: " + answer + b"\n\n"
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            loop.call_later(0.001, self.write, head + b"%x\r\n%b\r\n" % (len(event), event))
            end = b"data: [DONE]\n\n"
            loop.call_later(0.004, self.write, b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end))
        else:
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            loop.call_later(0.002, self.write, head % len(answer) + answer)

    def write(self, data):
        if not self.transport.is_closing():
            self.transport.write(data)


async def main(port, path):
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    server = await asyncio.get_running_loop().create_server(
        lambda: Replica(log), "127.0.0.1", port, reuse_address=True
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
