"""Through real sockets: client, data path, and a replica that frames what it gets with h11."""

import json

import pytest

from tests.support.gateway_wire import (
    DONE,
    LAST,
    TOKEN,
    USAGE,
    FakeReplica,
    FakeSteering,
    chunk,
    json_answer,
    request,
    stream_head,
    wire,
)
from warmturn.fleet import SourceId
from warmturn.gateway.limits import Limits
from warmturn.gateway.turns import Ending, Refused, Usage
from warmturn.types import ReplicaId

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi, and then some"}]}


def test_an_answer_in_one_piece_comes_back_and_tells_its_usage(run):
    async def scenario():
        data = {"id": "chat-7", "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
        async with wire(lambda _seen: [json_answer(data, headers=b"x-own: 1\r\n")]) as w:
            client = await w.client()
            got = await client.post(BODY)
            assert (got.status, json.loads(got.body)) == (200, data)
            assert got.headers["x-warmturn-replica"] == "r0/0"
            assert got.headers["x-own"] == "1"
            assert w.outcome.ending is Ending.COMPLETE
            assert w.outcome.usage == Usage(9, None, 2)
            assert w.outcome.response_id == "chat-7"
            assert w.steering.told == [("sent", "r0/0"), ("first_byte", "r0/0")]

    run(scenario())


def test_the_body_goes_on_byte_for_byte(run):
    async def scenario():
        async with wire() as w:
            body = (
                b' { "model" : "m",\t"messages":[{"role":"user","content":"\\u00e9 \xc3\xa9"}]}\n'
            )
            await (await w.client()).post(body)
            assert w.replicas[0].seen[0].body == body

    run(scenario())


def test_a_stream_is_relayed_without_the_usage_event_nobody_asked_for(run):
    async def scenario():
        pieces = [stream_head(), chunk(TOKEN), chunk(TOKEN), chunk(USAGE + DONE), LAST]
        async with wire(lambda _seen: pieces) as w:
            got = await (await w.client()).post(BODY | {"stream": True})
            assert got.body == TOKEN + TOKEN + DONE
            assert w.replicas[0].seen[0].json == BODY | {
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            assert w.outcome.usage == Usage(40, 32, 2)
            assert w.outcome.response_id == "chat-1"

    run(scenario())


def test_connections_are_kept_on_both_sides(run):
    async def scenario():
        async with wire() as w:
            client = await w.client()
            for _ in range(20):
                assert (await client.post(BODY)).status == 200
            assert w.path.num_connections == 1
            assert w.replicas[0].num_connections == 1
            assert len(w.steering.ended_turns) == 20

    run(scenario())


def test_the_salt_is_inserted(run):
    async def scenario():
        async with wire(steering=FakeSteering(salt="abc")) as w:
            await (await w.client()).post(BODY)
            seen = w.replicas[0].seen[0]
            assert seen.body == b'{"cache_salt":"abc",' + json.dumps(BODY).encode()[1:]

    run(scenario())


def test_the_model_and_options_the_client_sent_are_replaced_in_place(run):
    async def scenario():
        steering = FakeSteering(salt="abc", model="org/real")
        async with wire(steering=steering) as w:
            body = b'{"cache_salt":"mine", "model":"alias","stream":true,"x":[1, 2.50],"stream_options":null}'
            await (await w.client()).post(body)
            assert w.replicas[0].seen[0].body == (
                b'{"cache_salt":"abc","model":"org/real","stream":true,"x":[1, 2.50],'
                b'"stream_options":{"include_usage":true}}'
            )

    run(scenario())


def test_who_asks_for_usage_sees_it(run):
    async def scenario():
        pieces = [stream_head(), chunk(TOKEN), chunk(USAGE + DONE), LAST]
        async with wire(lambda _seen: pieces) as w:
            options = {"include_usage": True, "other": 1}
            got = await (await w.client()).post(BODY | {"stream": True, "stream_options": options})
            assert got.body == TOKEN + USAGE + DONE
            assert w.replicas[0].seen[0].json["stream_options"] == options

    run(scenario())


def test_the_reply_is_kept_where_the_steering_wants_it(run):
    async def scenario():
        pieces = [stream_head(), chunk(TOKEN), chunk(USAGE + DONE), LAST]
        async with wire(lambda _seen: pieces, steering=FakeSteering(wants_reply=True)) as w:
            await (await w.client()).post(BODY | {"stream": True})
            assert w.outcome.reply == TOKEN + DONE

    run(scenario())


def test_a_reply_that_is_too_long_is_relayed_and_not_kept(run):
    async def scenario():
        pieces = [stream_head(), *[chunk(TOKEN)] * 20, chunk(USAGE + DONE), LAST]
        limits = Limits(max_reply_bytes=500)
        steering = FakeSteering(wants_reply=True)
        async with wire(lambda _seen: pieces, steering=steering, limits=limits) as w:
            got = await (await w.client()).post(BODY | {"stream": True})
            assert got.body == TOKEN * 20 + DONE
            assert w.outcome.reply is None
            assert w.outcome.usage == Usage(40, 32, 2)

    run(scenario())


def test_usage_is_read_from_the_end_of_a_long_answer(run):
    async def scenario():
        data = {"data": ["x" * 1000] * 600, "usage": {"prompt_tokens": 8}}
        async with wire(lambda _seen: [json_answer(data)]) as w:
            got = await (await w.client()).post(BODY, path="/v1/embeddings")
            assert json.loads(got.body) == data
            assert w.outcome.usage == Usage(8, None, None)

    run(scenario())


def test_an_http_1_0_client_gets_no_chunks(run):
    async def scenario():
        async with wire(lambda _seen: [stream_head(), chunk(TOKEN), chunk(DONE), LAST]) as w:
            client = await w.client()
            await client.send(request(BODY | {"stream": True}, version=b"1.0"))
            head, _, body = (await client.read_all()).partition(b"\r\n\r\n")
            assert body == TOKEN + DONE
            assert b"chunked" not in head
            assert b"connection: close" in head

    run(scenario())


def test_a_body_that_ends_with_its_connection_gets_chunks(run):
    async def scenario():
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        async with wire(lambda _seen: [head, TOKEN, 0.05, DONE, FakeReplica.CLOSE]) as w:
            client = await w.client()
            got = await client.post(BODY | {"stream": True})
            assert got.body == TOKEN + DONE
            assert got.headers["transfer-encoding"] == "chunked"
            assert w.outcome.ending is Ending.COMPLETE
            assert (await client.post(BODY | {"stream": True})).body == TOKEN + DONE

    run(scenario())


def test_interim_answers_are_swallowed(run):
    async def scenario():
        early = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\ncontent-length: 9\r\n\r\n"
        async with wire(
            lambda _seen: [b"HTTP/1.1 100 Continue\r\n\r\n" + early, json_answer()]
        ) as w:
            got = await (await w.client()).post(BODY)
            assert got.status == 200
            assert "link" not in got.headers

    run(scenario())


def test_who_waits_to_go_on_is_told_and_the_replica_is_not(run):
    async def scenario():
        async with wire() as w:
            client = await w.client()
            await client.send(
                b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                b"Content-Length: 2\r\n\r\n"
            )
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(b"{}")
            assert (await client.answer()).status == 200
            assert "expect" not in w.replicas[0].seen[0].headers

    run(scenario())


def test_pipelined_requests_are_answered_in_order(run):
    async def scenario():
        def numbered(seen):
            return [json_answer({"number": seen.json["number"]})]

        async with wire(numbered, numbered) as w:
            client = await w.client()
            await client.send(b"".join(request(BODY | {"number": n}) for n in range(5)))
            got = [json.loads((await client.answer()).body)["number"] for _ in range(5)]
            assert got == [0, 1, 2, 3, 4]

    run(scenario())


def test_a_long_row_of_refused_requests_is_no_deep_stack(run):
    async def scenario():
        async with wire() as w:
            client = await w.client()
            await client.send(request(b"{}", path="/nothing") * 2000)
            assert {(await client.answer()).status for _ in range(2000)} == {404}

    run(scenario())


def test_a_chunked_request_goes_on_with_a_length(run):
    async def scenario():
        async with wire() as w:
            client = await w.client()
            body = json.dumps(BODY).encode()
            await client.send(
                b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            await client.send(chunk(body[:10]) + chunk(body[10:]) + LAST)
            assert (await client.answer()).status == 200
            seen = w.replicas[0].seen[0]
            assert (seen.target, seen.body) == ("/v1/chat/completions?a=b", body)
            assert seen.headers["content-length"] == str(len(body))
            assert "transfer-encoding" not in seen.headers

    run(scenario())


def test_headers_of_one_hop_end_here_and_others_go_on_as_sent(run):
    async def scenario():
        answer = json_answer(
            headers=b"Keep-Alive: timeout=5\r\nConnection: keep-alive\r\nServer: x\r\n"
        )
        async with wire(lambda _seen: [answer]) as w:
            got = await (await w.client()).post(
                BODY,
                headers=b"Connection: x-hop\r\nX-Hop: 1\r\nTE: trailers\r\nAccept-Encoding: gzip\r\n"
                b"X-Data-Parallel-Rank: 1\r\nTraceParent: 00-ab\r\nAuthorization: Bearer k\r\n",
            )
            seen = w.replicas[0].seen[0].headers
            assert set(seen) == {"host", "content-length", "traceparent", "authorization"}
            assert seen["host"] == f"127.0.0.1:{w.replicas[0].port}"
            assert "keep-alive" not in got.headers
            assert got.headers["server"] == "x"

    run(scenario())


def test_a_replica_with_a_key_of_its_own_never_sees_the_clients(run):
    async def scenario():
        key = {"Authorization": "Bearer upstream"}
        async with wire(headers=key, path_prefix="/engines/a") as w:
            headers = b"Authorization: Bearer mine\r\nX-Api-Key: mine\r\n"
            await (await w.client()).post(BODY, headers=headers)
            seen = w.replicas[0].seen[0]
            assert seen.headers["authorization"] == "Bearer upstream"
            assert "mine" not in str(seen.headers)
            assert seen.target == "/engines/a/v1/chat/completions"
            assert "upstream" not in repr(w.pools["r0"].address)

    run(scenario())


def test_a_replica_with_several_ranks_is_told_which(run):
    async def scenario():
        async with wire(num_ranks=2) as w:
            w.steering.sources = [SourceId(ReplicaId("r0"), 1)]
            await (await w.client()).post(BODY)
            assert w.replicas[0].seen[0].headers["x-data-parallel-rank"] == "1"

    run(scenario())


@pytest.mark.parametrize(
    "target",
    [
        "/reset_prefix_cache",
        "/v1/chat/../../reset_prefix_cache",
        "/v1/chat/completions/../../../sleep",
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/chat/completions/",
        "/v1/chat%2fcompletions",
        "/%76%31/chat/completions",
        "/v1/chat/completions;a",
        "/V1/chat/completions",
        "/v1/chat\\completions",
        "http://a/sleep",
        "*",
        "/",
        "/tokenize/../sleep",
        "/metrics",
    ],
)
def test_no_other_path_is_reachable_by_any_spelling(run, target):
    async def scenario():
        async with wire(allowed=["/tokenize"]) as w:
            got = await (await w.client()).post(b"{}", path=target)
            assert got.status in {400, 404}
            assert w.replicas[0].num_connections == 0
            assert w.steering.calls == []

    run(scenario())


def test_a_target_in_absolute_form_is_the_same_path(run):
    async def scenario():
        async with wire() as w:
            got = await (await w.client()).post(BODY, path="http://x/v1/chat/completions?a=b")
            assert got.status == 200
            assert w.replicas[0].seen[0].target == "/v1/chat/completions?a=b"
            assert w.replicas[0].seen[0].headers["host"].startswith("127.0.0.1")

    run(scenario())


def test_paths_of_the_allow_list_are_relayed_as_they_are(run):
    async def scenario():
        async with wire(
            allowed=["/tokenize", "/v1/audio/speech"], steering=FakeSteering(salt="s")
        ) as w:
            client = await w.client()
            await client.post(b"\x00 not json", path="/v1/audio/speech")
            await client.post(b"", path="/tokenize", method=b"GET")
            seen = w.replicas[0].seen
            assert [(each.method, each.body) for each in seen] == [
                ("POST", b"\x00 not json"),
                ("GET", b""),
            ]
            head = b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n"
            w.replicas[0].answer = lambda _seen: [head]
            got = await client.post(b"", path="/tokenize", method=b"HEAD")
            assert (got.headers["content-length"], got.body) == ("50", b"")
            w.replicas[0].answer = lambda _seen: [json_answer()]
            assert (await client.post(b"{}", path="/tokenize", method=b"PUT")).status == 405
            assert (await client.post(b"{}", path="/tokenize")).status == 200
            assert w.replicas[0].seen[-1].json == {"cache_salt": "s"}

    run(scenario())


def test_what_the_gateway_knows_itself_asks_nobody(run):
    async def scenario():
        async with wire(local={b"/v1/models": lambda: b'{"data":[]}'}) as w:
            client = await w.client()
            await client.send(request(b"", path="/v1/models", method=b"GET"))
            assert (await client.answer()).body == b'{"data":[]}'
            await client.send(request(b"", path="/v1/models", method=b"HEAD"))
            got = await client.answer(method="HEAD")
            assert (got.headers["content-length"], got.body) == ("11", b"")
            assert (await client.post(b"{}", path="/v1/models")).status == 404
            assert w.steering.calls == []

    run(scenario())


def test_refusals_speak_the_clients_api(run):
    async def scenario():
        refusal = Refused(429, "too many", code="busy", retry_after_s=1.5)
        async with wire(steering=FakeSteering(refusal=refusal)) as w:
            client = await w.client()
            got = await client.post(BODY)
            assert (got.status, got.headers["retry-after"]) == (429, "2")
            assert got.error == {
                "message": "too many",
                "type": "rate_limit_exceeded",
                "param": None,
                "code": "busy",
            }
            got = await client.post(BODY, path="/v1/messages")
            assert json.loads(got.body) == {
                "type": "error",
                "error": {"type": "rate_limit_error", "message": "too many"},
            }
            assert w.steering.ended_turns == []

    run(scenario())
