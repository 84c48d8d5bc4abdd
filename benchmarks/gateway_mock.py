"""Replicas that do no work, for `benchmarks/gateway.py`: one process, one port each.

    python benchmarks/gateway_mock.py PORT...

Answers what vLLM and SGLang answer, as far as routers ask: chat, streamed (100 events at 10 ms, or
at once for `max_tokens` 101) and not, with usage where it is asked for; models, health, server info.
"""

import asyncio
import sys

import httptools
import uvloop

NUM_CHUNKS = 100
GAP_S = 0.01
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"mock",'
    b'"port":%d,"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n'
)
_USAGE = (
    b'{"prompt_tokens":40,"completion_tokens":100,"total_tokens":140,'
    b'"prompt_tokens_details":{"cached_tokens":32}}'
)
_USAGE_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"mock",'
    b'"choices":[],"usage":%b}\n\n'
) % _USAGE
_ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"mock","port":%d,"choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"hello from mock, a short answer"},'
    b'"finish_reason":"stop"}],"usage":%b}'
)
_MODELS = b'{"object":"list","data":[{"id":"mock","object":"model","max_model_len":131072}]}'
_INFO = (
    b'{"model_path":"mock","served_model_name":"mock","is_generation":true,"tp_size":1,'
    b'"dp_size":1,"version":"0"}'
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Replica(asyncio.Protocol):
    """One connection; a request is answered when it is whole."""

    def __init__(self, port: int) -> None:
        event = _chunk(_EVENT % port)
        self.event = event
        answer = _ANSWER % (port, _USAGE)
        self.answer = _JSON % (len(answer), answer)
        self.body: list[bytes] = []
        self.on_body = self.body.append
        self.parser = httptools.HttpRequestParser(self)
        self.path = b""
        self.num_sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.path = url

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002 - httptools's
        if name.lower() == b"expect":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_message_complete(self) -> None:
        body = self.body[0] if len(self.body) == 1 else b"".join(self.body)
        self.body.clear()
        if self.path.startswith(b"/v1/chat/completions"):
            # Streams of this benchmark are small; the flag is not looked for in long bodies.
            if len(body) < 4096 and b'"stream":true' in body:
                self.stream(body)
            else:
                self.write(self.answer)
        elif b"models" in self.path:
            self.write(_JSON % (len(_MODELS), _MODELS))
        elif b"info" in self.path:
            self.write(_JSON % (len(_INFO), _INFO))
        elif b"load" in self.path:
            self.write(_JSON % (10, b'{"load":0}'))
        else:
            self.write(_JSON % (15, b'{"status":"ok"}'))

    def stream(self, body: bytes) -> None:
        end = (_USAGE_EVENT if b'"include_usage":true' in body else b"") + b"data: [DONE]\n\n"
        last = _chunk(end) + b"0\r\n\r\n"
        self.write(_STREAM)
        if b'"max_tokens":101' in body:
            self.write(self.event * NUM_CHUNKS + last)
            return
        self.num_sent = 0
        self.tick(asyncio.get_running_loop(), last)

    def tick(self, loop: asyncio.AbstractEventLoop, last: bytes) -> None:
        if self.transport.is_closing():
            return
        self.num_sent += 1
        if self.num_sent > NUM_CHUNKS:
            self.write(last)
            return
        self.write(self.event)
        loop.call_later(GAP_S, self.tick, loop, last)

    def write(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


async def main(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(lambda port=port: Replica(port), "127.0.0.1", port, backlog=1024)  # type: ignore[misc]
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main([int(port) for port in sys.argv[1:]]))
