"""Replicas that fail: before the first byte another one answers, after it the client is told."""

import asyncio
import json

import pytest

from tests.support.gateway_wire import (
    DONE,
    TOKEN,
    FakeReplica,
    FakeSteering,
    chunk,
    json_answer,
    request,
    stream_head,
    until,
    wire,
)
from warmturn.gateway.limits import Limits
from warmturn.gateway.turns import Ending

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi, and then some more of it"}]}
STREAM = BODY | {"stream": True}


def fails_first(pieces):
    """A replica that fails each of its requests with `pieces`; the second one answers."""
    return (lambda _seen: pieces), (lambda _seen: [json_answer({"id": "second"})])


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([FakeReplica.CLOSE], "closed"),
        ([FakeReplica.RESET], "closed"),
        ([b"HTTP/1.1 200 OK\r\ncontent-le", FakeReplica.CLOSE], "closed"),
        ([stream_head(), FakeReplica.CLOSE], "closed"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", FakeReplica.RESET], "closed"),
        ([b"what is this?\r\n\r\n"], "garbled"),
        ([b"HTTP/1.1 200 OK\nno: crs\n\n"], "garbled"),
        ([json_answer({}, status="503 Service Unavailable")], "status 503"),
        ([json_answer({}, status="502 Bad Gateway")], "status 502"),
        ([json_answer({}, status="429 Too Many Requests")], "status 429"),
    ],
)
def test_before_the_first_byte_another_replica_answers(run, pieces, why):
    async def scenario():
        async with wire(*fails_first(pieces)) as w:
            got = await (await w.client()).post(BODY)
            assert (got.status, json.loads(got.body)["id"]) == (200, "second")
            assert got.headers["x-warmturn-replica"] == "r1/0"
            assert ("failed", why) in w.steering.told
            assert [len(replica.seen) for replica in w.replicas] == [1, 1]
            assert w.outcome.ending is Ending.COMPLETE

    run(scenario())


def test_a_replica_that_cannot_be_reached_is_passed_over(run):
    async def scenario():
        async with wire(None, None) as w:
            await w.replicas[0].stop()
            got = await (await w.client()).post(BODY)
            assert got.headers["x-warmturn-replica"] == "r1/0"
            assert w.steering.told[0] == ("failed", "connect")

    run(scenario())


def test_a_pool_that_was_removed_is_passed_over(run):
    async def scenario():
        async with wire(None, None) as w:
            w.pools.pop("r0").close()
            got = await (await w.client()).post(BODY)
            assert got.headers["x-warmturn-replica"] == "r1/0"

    run(scenario())


def test_when_all_fail_the_client_learns_when_to_come_again(run):
    async def scenario():
        async with wire(lambda _seen: [FakeReplica.CLOSE], lambda _seen: [FakeReplica.CLOSE]) as w:
            got = await (await w.client()).post(BODY)
            assert (got.status, got.headers["retry-after"]) == (503, "2")
            assert got.error["message"] == "no replica is left"
            assert (w.outcome.ending, w.outcome.status) == (Ending.REFUSED, 503)
            assert (await (await w.client()).post(BODY)).status == 503

    run(scenario())


def test_when_nobody_else_can_take_it_the_client_learns_when_to_come_again(run):
    async def scenario():
        steering = FakeSteering(retries=False)
        async with wire(lambda _seen: [FakeReplica.CLOSE], None, steering=steering) as w:
            got = await (await w.client()).post(BODY)
            assert (got.status, got.error["code"]) == (503, "no_replica")
            assert got.headers["retry-after"] == "1"
            assert w.replicas[1].seen == []

    run(scenario())


def test_a_refusal_of_the_last_replica_is_the_answer(run):
    async def scenario():
        busy = json_answer(
            {"busy": 1}, status="503 Service Unavailable", headers=b"Retry-After: 7\r\n"
        )
        async with wire(lambda _seen: [busy], lambda _seen: [busy]) as w:
            got = await (await w.client()).post(BODY)
            assert (got.status, got.headers["retry-after"]) == (503, "7")
            assert json.loads(got.body) == {"busy": 1}
            assert w.outcome.ending is Ending.COMPLETE
            assert ("first_byte", "r1/0") not in w.steering.told

    run(scenario())


def test_a_replica_that_stays_silent_is_left(run):
    async def scenario():
        limits = Limits(first_byte_timeout_s=0.1)
        async with wire(lambda _seen: [30.0], None, limits=limits) as w:
            got = await (await w.client()).post(BODY)
            assert got.headers["x-warmturn-replica"] == "r1/0"
            assert ("failed", "timeout") in w.steering.told
            await until(lambda: w.replicas[0].num_lost == 1)

    run(scenario())


def test_a_closed_kept_connection_does_not_cost_the_warm_replica_its_turn(run):
    async def scenario():
        async with wire() as w:
            replica = w.replicas[0]
            client = await w.client()
            # The first answer keeps the connection; the second request finds it closed unanswered.
            replica.answer = lambda seen: (
                [FakeReplica.CLOSE]
                if len(replica.seen) == 2
                else [json_answer({"n": seen.connection})]
            )
            assert json.loads((await client.post(BODY)).body) == {"n": 1}
            assert json.loads((await client.post(BODY)).body) == {"n": 2}
            assert w.path.counts.num_stale == 1
            assert not [told for told in w.steering.told if told[0] == "failed"]

    run(scenario())


def test_after_the_first_byte_a_stream_ends_with_an_error_event(run):
    async def scenario():
        pieces = [stream_head(), chunk(TOKEN), 0.05, chunk(b'data: {"half'), FakeReplica.RESET]
        async with wire(lambda _seen: pieces, None) as w:
            client = await w.client()
            got = await client.post(STREAM)
            assert got.body.startswith(TOKEN + b'data: {"error":')
            assert b"half" not in got.body
            assert DONE not in got.body
            error = json.loads(got.body[len(TOKEN) + 6 :])["error"]
            assert (error["type"], error["code"]) == ("server_error", "replica_failed")
            assert w.outcome.ending is Ending.CUT
            assert w.replicas[1].seen == []
            w.replicas[0].answer = lambda _seen: [json_answer()]
            assert (await client.post(BODY)).status == 200  # the connection is whole

    run(scenario())


def test_anthropics_clients_get_their_own_error_event(run):
    async def scenario():
        first = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m"}}\n\n'
        pieces = [stream_head(), chunk(first), FakeReplica.RESET]
        async with wire(lambda _seen: pieces) as w:
            got = await (await w.client()).post(STREAM, path="/v1/messages")
            event = got.body[len(first) :].split(b"\n")
            assert event[0] == b"event: error"
            assert json.loads(event[1][6:])["error"]["type"] == "api_error"
            assert json.loads(event[1][6:])["type"] == "error"

    run(scenario())


def test_a_stream_that_falls_silent_is_ended(run):
    async def scenario():
        limits = Limits(stream_timeout_s=0.1)
        async with wire(lambda _seen: [stream_head(), chunk(TOKEN), 30.0], limits=limits) as w:
            got = await (await w.client()).post(STREAM)
            assert b"sent nothing for 0.1 s" in got.body
            await until(lambda: w.replicas[0].num_lost == 1)

    run(scenario())


def test_an_answer_in_one_piece_that_breaks_off_is_cut(run):
    async def scenario():
        half = b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"id":'
        async with wire(lambda _seen: [half, 0.05, FakeReplica.RESET]) as w:
            client = await w.client()
            await client.send(request(BODY))
            data = await client.read_all()
            assert data.endswith(b'{"id":')
            assert w.outcome.ending is Ending.CUT

    run(scenario())


def test_a_client_that_leaves_stops_the_replica(run):
    async def scenario():
        async with wire(lambda _seen: [stream_head(), chunk(TOKEN), 30.0]) as w:
            client = await w.client()
            await client.send(
                b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
            )
            await client.reader.readuntil(TOKEN)
            client.close()
            await until(lambda: w.replicas[0].num_lost == 1)
            assert w.outcome.ending is Ending.CLIENT_GONE

    run(scenario())


def test_a_client_that_leaves_before_an_answer_stops_the_replica(run):
    async def scenario():
        async with wire(lambda _seen: [30.0]) as w:
            client = await w.client()
            await client.send(
                b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
            )
            await until(lambda: w.replicas[0].seen)
            client.close()
            await until(lambda: w.replicas[0].num_lost == 1)
            assert (w.outcome.ending, w.outcome.status) == (Ending.CLIENT_GONE, 499)

    run(scenario())


def test_a_client_that_leaves_while_its_call_is_admitted_ends_its_turn(run):
    async def scenario():
        steering = FakeSteering(admit_after=asyncio.Event())
        async with wire(steering=steering) as w:
            client = await w.client()
            await client.send(
                b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
            )
            await until(lambda: steering.calls)
            client.close()
            await until(lambda: not w.path.num_connections)
            assert steering.ended_turns == []
            steering.admit_after.set()
            await until(lambda: steering.ended_turns)
            assert w.outcome.ending is Ending.CLIENT_GONE
            assert w.replicas[0].seen == []

    run(scenario())


def test_an_awaited_admission_goes_on(run):
    async def scenario():
        steering = FakeSteering(admit_after=asyncio.Event())
        async with wire(steering=steering) as w:
            client = await w.client()
            asking = asyncio.ensure_future(client.post(BODY))
            await until(lambda: steering.calls)
            steering.admit_after.set()
            assert (await asking).status == 200

    run(scenario())


def test_a_failure_of_the_steering_is_a_500_that_says_nothing(run, caplog):
    class Broken(FakeSteering):
        def place(self, turn, now):
            raise RuntimeError(turn.call.body)

    async def scenario():
        async with wire(steering=Broken()) as w:
            got = await (await w.client()).post(BODY)
            assert (got.status, got.error["code"]) == (500, "internal_error")
            assert b"Hi, and" not in got.body
            assert "RuntimeError" in caplog.text
            assert "Hi, and" not in caplog.text
            assert w.outcome.status == 500

    run(scenario())


def test_bytes_behind_an_answer_are_never_relayed(run):
    async def scenario():
        evil = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
        async with wire(lambda _seen: [json_answer() + evil]) as w:
            client = await w.client()
            assert b"evil" not in (await client.post(BODY)).body
            assert b"evil" not in (await client.post(BODY)).body
            assert w.replicas[0].num_connections == 2

    run(scenario())


def test_bytes_on_a_kept_connection_without_a_request_end_it(run):
    async def scenario():
        async with wire(lambda _seen: [json_answer(), 0.05, b"HTTP/1.1 200 OK\r\n"]) as w:
            client = await w.client()
            assert (await client.post(BODY)).status == 200
            await until(lambda: w.pools["r0"].num_idle == 0)
            w.replicas[0].answer = lambda _seen: [json_answer()]
            assert (await client.post(BODY)).status == 200

    run(scenario())
