"""What clients may hold, and for how long; back-pressure; draining and stopping."""

import asyncio
import json
import socket

import psutil
import pytest

from tests.support.gateway_wire import (
    DONE,
    LAST,
    TOKEN,
    chunk,
    json_answer,
    request,
    stream_head,
    until,
    wire,
)
from warmturn.errors import InvalidInput
from warmturn.gateway.apis import path_table
from warmturn.gateway.limits import Limits
from warmturn.gateway.turns import Ending

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi, and then some more of it"}]}
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"


def refusal_of(data):
    """Return status and error of an answer that closes its connection."""
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (HEAD + b"Content-Length: 2000\r\n\r\n" + b"x" * 2000, 413),
        (HEAD + b"Content-Length: 2000\r\nExpect: 100-continue\r\n\r\n", 413),
        (HEAD + b"X: " + b"y" * 70_000, 431),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"\x16\x03\x01 hello", 400),
    ],
)
def test_what_is_refused_unread_gets_its_answer_and_an_end(run, data, status):
    async def scenario():
        async with wire(limits=Limits(max_body_bytes=1000)) as w:
            client = await w.client()
            await client.send(data)
            found, _ = refusal_of(await client.read_all())
            assert found == status
            assert w.steering.calls == []
            assert w.path.refusals == {status: 1}

    run(scenario())


def test_the_refusal_of_a_large_upload_can_be_read(run):
    async def scenario():
        async with wire() as w:
            client = await w.client()
            client.writer.write(HEAD + b"Content-Length: 900000000\r\n\r\n")
            data = asyncio.ensure_future(client.read_all())
            for _ in range(50):
                client.writer.write(b"x" * 65536)
                await asyncio.sleep(0)
            assert refusal_of(await data)[0] == 413

    run(scenario())


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"POST /v1/chat/comp", "head"),
        (HEAD + b"Content-Length: 10\r\n\r\n{", "body"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "body"),
    ],
)
def test_who_sends_too_slowly_is_refused(run, data, what):
    async def scenario():
        async with wire(limits=Limits(head_timeout_s=0.1, body_timeout_s=0.1)) as w:
            client = await w.client()
            await client.send(data)
            status, error = refusal_of(await client.read_all())
            assert status == 408
            assert what in error["message"]

    run(scenario())


def test_one_byte_at_a_time_does_not_buy_time(run):
    async def scenario():
        async with wire(limits=Limits(head_timeout_s=0.3)) as w:
            client = await w.client()
            asking = asyncio.ensure_future(client.read_all())
            for byte in HEAD * 20:
                if asking.done():
                    break
                client.writer.write(bytes([byte]))
                await asyncio.sleep(0.01)
            assert refusal_of(await asking)[0] == 408

    run(scenario())


def test_an_idle_connection_is_closed(run):
    async def scenario():
        async with wire(limits=Limits(keep_alive_s=0.1)) as w:
            client = await w.client()
            assert (await client.post(BODY)).status == 200
            assert await client.read_all() == b""

    run(scenario())


def test_a_connection_too_many_is_refused(run):
    async def scenario():
        async with wire(limits=Limits(max_connections=2)) as w:
            clients = [await w.client() for _ in range(3)]
            status, error = refusal_of(await clients[2].read_all())
            assert (status, error["code"]) == (503, "server_overloaded")
            assert (await clients[0].post(BODY)).status == 200

    run(scenario())


def test_all_bodies_together_are_bounded(run):
    async def scenario():
        async with wire(limits=Limits(max_held_bytes=3000)) as w:
            first, second = await w.client(), await w.client()
            await first.send(HEAD + b"Content-Length: 2500\r\n\r\n{")
            await asyncio.sleep(0.05)
            await second.send(HEAD + b"Content-Length: 1000\r\n\r\n{")
            assert refusal_of(await second.read_all())[0] == 503
            first.close()
            await until(lambda: w.path.num_held_bytes == 0)
            assert (await (await w.client()).post(BODY)).status == 200
            assert w.path.num_held_bytes == 0

    run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"model": 3}',
        b'{"model": "m"} x',
        b'{"model": "\xff"}',
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"kv_transfer_params": {"do_remote_prefill": true}}',
        b'{"kv_transfer_params": null}',
        b'{"kv\\u005ftransfer_params": {}}',
        b'{"bootstrap_host": "10.0.0.1"}',
        b'{"vllm_xargs": {"kv_transfer_params": "x"}}',
        b'{"vllm_xargs": {"kv\\u005ftransfer_params": "x"}}',
        b'{"cache_salt": "a", "cache_salt": "b"}',
        b'{"cache_salt": "a", "cache\\u005fsalt": "b"}',
        b'{"cache\\u005fsalt": "b"}',
        b'{"cache_salt": "a", "model": "\\u0041", "n": ' + b"1" * 5000 + b"}",
        b'{"stream": true, "stream_options": {"include_usage": tru}}',
        b'{"stream": true, "stream_options": {"\xff": 1}}',
        b'{"stream": true, "\xff": 1, "stream_options": null}',
        b'{"stream_options": {}, "stream": true, "stream_options": {"include_usage": false}}',
    ],
)
def test_a_body_that_must_not_be_sent_on_is_a_400(run, body):
    async def scenario():
        async with wire() as w:
            client = await w.client()
            got = await client.post(body)
            assert got.status == 400
            assert got.error["type"] == "invalid_request_error"
            assert w.replicas[0].seen == []
            assert (await client.post(BODY)).status == 200

    run(scenario())


def test_a_salt_inside_a_message_is_no_second_one(run):
    async def scenario():
        async with wire() as w:
            body = {"cache_salt": "a", "messages": [{"content": 'x "cache_salt" {"cache_salt":1}'}]}
            body["metadata"] = {"cache_salt": "inner"}
            assert (await (await w.client()).post(body)).status == 200
            assert w.replicas[0].seen[0].json == body

    run(scenario())


def test_other_methods_are_refused(run):
    async def scenario():
        async with wire() as w:
            client = await w.client()
            for method in (b"GET", b"DELETE", b"OPTIONS"):
                assert (await client.post(b"", method=method)).status == 405

    run(scenario())


def test_a_client_that_does_not_read_holds_back_its_replica(run):
    """Its 200 MB stay where they come from: the gateway holds a few buffers of them."""

    async def scenario():
        sent = [0]

        def flood(_seen):
            yield stream_head()
            for _ in range(3000):
                sent[0] += 1
                yield chunk(b"data: " + b"x" * 65_000 + b"\n\n")
            yield LAST

        async with wire(flood) as w:
            reading = socket.socket()
            reading.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reading.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(reading, ("127.0.0.1", w.port))
            await loop.sock_sendall(reading, request(BODY | {"stream": True}))
            before = psutil.Process().memory_info().rss
            await asyncio.sleep(0.7)
            held = sent[0]
            await asyncio.sleep(0.5)
            assert sent[0] == held < 1000, "the replica is not held back"
            assert psutil.Process().memory_info().rss - before < 40_000_000
            num_bytes = 0
            while num_bytes < 2_000_000:  # once it reads, more comes
                num_bytes += len(await loop.sock_recv(reading, 65536))
            await until(lambda: sent[0] > held)
            reading.close()
            await until(lambda: w.replicas[0].num_lost == 1)
            assert w.outcome.ending is Ending.CLIENT_GONE

    run(scenario())


def test_a_client_that_never_reads_is_gone_after_a_while(run):
    async def scenario():
        def flood(_seen):
            yield stream_head()
            for _ in range(3000):
                yield chunk(b"data: " + b"x" * 65_000 + b"\n\n")

        async with wire(flood, limits=Limits(write_timeout_s=0.2, stream_timeout_s=5)) as w:
            reading = socket.socket()
            reading.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(reading, ("127.0.0.1", w.port))
            await loop.sock_sendall(reading, request(BODY | {"stream": True}))
            await until(lambda: w.steering.ended_turns)
            assert w.outcome.ending is Ending.CLIENT_GONE
            reading.close()

    run(scenario())


def test_pipelining_without_reading_is_held_back(run):
    async def scenario():
        released = asyncio.Event()
        async with wire(lambda _seen: [released, json_answer()]) as w:
            client = await w.client()
            row = request(BODY) * 100_000
            client.writer.write(row)
            await asyncio.sleep(0.3)
            assert client.writer.transport.get_write_buffer_size() > 0
            (connection,) = w.path.connections
            assert connection.num_waiting_bytes < 700_000
            released.set()
            for _ in range(300):
                assert (await client.answer()).status == 200

    run(scenario())


def test_draining_lets_turns_end_and_takes_no_more(run):
    async def scenario():
        released = asyncio.Event()
        answer = [stream_head(), chunk(TOKEN), released, chunk(DONE), LAST]
        async with wire(lambda _seen: answer) as w:
            busy, idle = await w.client(), await w.client()
            await busy.send(request(BODY | {"stream": True}))
            await busy.reader.readuntil(b'"Hi"')
            draining = asyncio.ensure_future(w.path.drain(5))
            assert await idle.read_all() == b""
            with pytest.raises(OSError, match=r".*"):
                await w.client()
            assert not draining.done()
            released.set()
            assert await draining
            assert (await busy.read_all()).endswith(DONE + b"\r\n" + LAST)
            assert w.outcome.ending is Ending.COMPLETE

    run(scenario())


def test_what_drains_too_long_is_told_so(run):
    async def scenario():
        async with wire(lambda _seen: [stream_head(), chunk(TOKEN), 30.0]) as w:
            streaming, waiting = await w.client(), await w.client()
            await streaming.send(request(BODY | {"stream": True}))
            await streaming.reader.readuntil(b'"Hi"')
            w.replicas[0].answer = lambda _seen: [30.0]
            await waiting.send(request(BODY))
            await until(lambda: len(w.replicas[0].seen) == 2)
            assert not await w.path.drain(0.1)
            await w.path.close()
            assert b"shutting down" in await streaming.read_all()
            assert refusal_of(await waiting.read_all())[0] == 503
            endings = {ended.outcome.ending for ended in w.steering.ended_turns}
            assert endings == {Ending.CUT, Ending.REFUSED}
            assert w.path.num_connections == 0

    run(scenario())


def test_kept_connections_to_replicas_are_few_and_grow_old(run):
    async def scenario():
        limits = Limits(max_idle_upstream=2, upstream_idle_s=0.2)
        async with wire(lambda _seen: [0.05, json_answer()], limits=limits) as w:
            clients = [await w.client() for _ in range(6)]
            await asyncio.gather(*(client.post(BODY) for client in clients))
            assert w.replicas[0].num_connections == 6
            assert w.pools["r0"].num_idle == 2
            await until(lambda: w.pools["r0"].num_idle == 0)

    run(scenario())


def test_an_address_that_is_taken_is_an_error_that_says_so(run):
    async def scenario():
        async with wire() as w:
            with pytest.raises(InvalidInput, match=f"port {w.port}"):
                await type(w.path)(w.steering, {}).start("127.0.0.1", w.port)

    run(scenario())


@pytest.mark.parametrize(
    "path",
    ["tokenize", "/a//b", "/a/../b", "/a%2fb", "/a?b", "", "/reset_prefix_cache", "/metrics"],
)
def test_what_must_not_be_relayed_cannot_be_allowed(path):
    with pytest.raises(InvalidInput, match="cannot be relayed"):
        path_table([path])
