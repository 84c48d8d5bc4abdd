"""Clients are plain sockets here, so that each test leaves exactly when it means to."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.client import served, wait_until
from tests.support.tiny_server import HELLO, TinyServer, says

CHAT = "/v1/chat/completions"


def ask(url: str, **fields) -> socket.socket:
    """Send a chat and return the socket, the answer unread."""
    body = json.dumps(HELLO | fields).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: tiny\r\ncontent-type: application/json\r\n"
    host, port = url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)))
    client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return client


@pytest.mark.parametrize("num_tokens_before", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_request_at_once(stream, num_tokens_before):
    server = TinyServer(says("hello", hangs_after=num_tokens_before))
    with served(server.app) as url:
        client = ask(url, stream=stream)
        wait_until(lambda: server.engine.num_hanging == 1)
        client.close()
        wait_until(lambda: server.engine.cancelled)
        assert server.engine.stats().num_running == 0
        assert server.value("vllm:request_success_total", finished_reason="abort") == 1
        server.engine.script = says("on")
        assert httpx.post(url + CHAT, json=HELLO).is_success


def test_a_client_that_leaves_in_the_middle_of_a_stream_cancels_it():
    server = TinyServer(says("x" * 50, hangs_after=20))
    with served(server.app) as url:
        body = HELLO | {"stream": True}
        with httpx.stream("POST", url + CHAT, json=body) as response:
            lines = response.iter_lines()  # kept: dropping it would close the connection
            assert "role" in next(lines)
            assert server.engine.cancelled == []
        wait_until(lambda: server.engine.cancelled)
    assert server.engine.finished == []


def test_one_client_leaving_does_not_touch_another():
    server = TinyServer(says("hello", hangs_after=1))
    with served(server.app) as url, ThreadPoolExecutor() as pool:
        stays = pool.submit(httpx.post, url + CHAT, json=HELLO, timeout=30)
        wait_until(lambda: server.engine.num_hanging == 1)
        leaves = ask(url)
        wait_until(lambda: server.engine.num_hanging == 2)
        leaves.close()
        wait_until(lambda: server.engine.cancelled)
        assert server.engine.cancelled == [server.engine.requests[1].request_id]
        assert not stays.done()
        server.engine.release()
        assert stays.result().json()["choices"][0]["message"]["content"] == "hello"


def test_slots_are_free_again_after_a_reply_and_after_a_disconnect():
    server = TinyServer(says("hello", hangs_after=1), max_concurrent_requests=1)
    with served(server.app) as url:
        client = ask(url)
        wait_until(lambda: server.engine.num_hanging == 1)
        assert httpx.post(url + CHAT, json=HELLO).status_code == 503
        client.close()
        wait_until(lambda: server.engine.cancelled)
        server.engine.script = says("on")
        assert [httpx.post(url + CHAT, json=HELLO).status_code for _ in range(3)] == [200] * 3


def test_a_client_that_leaves_before_its_body_is_whole_asks_for_nothing():
    server = TinyServer()
    with served(server.app) as url:
        host, port = url.removeprefix("http://").split(":")
        client = socket.create_connection((host, int(port)))
        head = f"POST {CHAT} HTTP/1.1\r\nhost: tiny\r\ncontent-type: application/json\r\n"
        client.sendall(f"{head}content-length: 999\r\n\r\n".encode() + b'{"mess')
        client.close()
        assert httpx.post(url + CHAT, json=HELLO).is_success
    assert len(server.engine.requests) == 1
