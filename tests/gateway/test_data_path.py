"""Through real sockets: client, data path, and a replica that frames what it gets with h11."""

import json

from tests.support.gateway_wire import (
    DONE,
    LAST,
    TOKEN,
    USAGE,
    FakeSteering,
    chunk,
    json_answer,
    stream_head,
    wire,
)
from warmturn.gateway.turns import Ending, Usage

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
