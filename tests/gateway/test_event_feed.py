"""A feed against the real publisher of the embedded engine, over socket files."""

import asyncio
import struct

import numpy as np
import pytest
import zmq
import zmq.asyncio

from tests.support.tiny_fleet import chain, payload, source, stored
from warmturn.cache.events import AllBlocksCleared, BlockRemoved
from warmturn.engine.publisher import EventPublisher
from warmturn.errors import InvalidInput
from warmturn.fleet import FleetConsumer, FleetIndex, SourceState
from warmturn.gateway.event_feed import EventFeed, endpoint_of_rank

A = source("a")
TOKENS = list(range(1, 21))


@pytest.fixture
def places(tmp_path):
    return {
        "endpoint": f"ipc://{tmp_path}/live.sock",
        "replay_endpoint": f"ipc://{tmp_path}/replay.sock",
    }


class Following:
    """A consumer with its feed, for `async with`."""

    def __init__(self, **options):
        self.consumer = FleetConsumer(FleetIndex())
        self.feed = EventFeed(A.replica, self.consumer, **options)

    async def __aenter__(self):
        await self.feed.start()
        return self

    async def __aexit__(self, *_):
        await self.feed.close()

    def held(self, at=A) -> int:
        return self.consumer.match(chain(TOKENS)).of(at).device

    async def until(self, condition):
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)


def block(number: int):
    """The `number`-th block of TOKENS as an event."""
    tokens = TOKENS[4 * number : 4 * number + 4]
    return stored((100 + number,), tokens, parent=99 + number if number else None)


def test_what_was_published_before_and_after_the_feed_came_is_held(places):
    async def main():
        with EventPublisher(**places) as publisher:
            publisher.publish([block(0)])
            publisher.publish([block(1)])
            async with Following(**places) as following:
                await following.until(lambda: following.held() == 2)
                assert following.consumer.state(A) is SourceState.EXACT
                publisher.publish([block(2)])
                await following.until(lambda: following.held() == 3)
                publisher.publish([BlockRemoved((101,))])
                await following.until(lambda: following.held() == 1)
                following.consumer.index.check()

    asyncio.run(main())


def test_a_feed_that_came_first_waits_for_the_engine(places):
    async def main():
        async with Following(**places) as following:
            await asyncio.sleep(0.05)
            assert not following.feed.connected
            with EventPublisher(**places) as publisher:
                await following.until(lambda: following.feed.connected)
                publisher.publish([block(0)])
                await following.until(lambda: following.held() == 1)
                assert following.consumer.state(A) is SourceState.EXACT

    asyncio.run(main())


def test_an_engine_that_restarts_is_not_credited_with_its_former_life(places):
    async def main():
        async with Following(**places) as following:
            with EventPublisher(**places) as publisher:
                await following.until(lambda: following.feed.connected)
                for number in range(4):
                    publisher.publish([block(number)])
                await following.until(lambda: following.held() == 4)
            await following.until(lambda: not following.feed.connected)
            with EventPublisher(**places) as publisher:  # and it publishes nothing at first
                await following.until(lambda: following.held() == 0)
                await following.until(lambda: following.consumer.state(A) is SourceState.EXACT)
                publisher.publish([block(0)])
                await following.until(lambda: following.held() == 1)

    asyncio.run(main())


def test_without_a_replay_socket_a_late_feed_is_degraded_until_a_clear(places):
    places = {"endpoint": places["endpoint"]}

    async def main():
        with EventPublisher(**places) as publisher:
            publisher.publish([block(0)])
            await asyncio.sleep(0.5)  # its thread has sent it by then, to nobody
            async with Following(**places) as following:
                await following.until(lambda: following.feed.num_unanswered == 1)
                assert following.consumer.state(A) is SourceState.UNKNOWN
                publisher.publish([BlockRemoved((1,))])
                await following.until(lambda: following.consumer.state(A) is SourceState.DEGRADED)
                publisher.publish([AllBlocksCleared(), block(0)])
                await following.until(lambda: following.consumer.state(A) is SourceState.EXACT)
                assert following.held() == 1

    asyncio.run(main())


class Puppet:
    """A publisher whose every frame the test writes."""

    def __init__(self, context, places):
        self.live, self.replay = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self.live.bind(places["endpoint"])
        self.replay.bind(places["replay_endpoint"])

    async def send(self, *frames):
        await self.live.send_multipart(frames)

    async def batch(self, number, *events):
        await self.send(b"", number.to_bytes(8, "big"), payload(*events))

    async def answer(self, *batches, with_topic=True, has_end=True) -> int:
        client, _, first = await self.replay.recv_multipart()
        topic = (b"",) if with_topic else ()
        for number, *events in batches:
            frames = (client, b"", *topic, number.to_bytes(8, "big"), payload(*events))
            await self.replay.send_multipart(frames)
        if has_end:
            await self.replay.send_multipart((client, b"", *topic, struct.pack(">q", -1), b""))
        return int.from_bytes(first, "big")


def with_puppet(places, play, **options):
    async def main():
        context = zmq.asyncio.Context()
        puppet = Puppet(context, places)
        try:
            async with Following(**places, **options) as following, asyncio.timeout(20):
                await play(puppet, following)
        finally:
            context.destroy(linger=0)

    asyncio.run(main())


@pytest.mark.parametrize("with_topic", [True, False])
def test_a_lost_batch_is_asked_for_and_takes_effect_before_the_next(places, with_topic):
    async def play(puppet, following):
        assert await puppet.answer((0, block(0)), with_topic=with_topic) == 0
        await following.until(lambda: following.held() == 1)
        await puppet.batch(2, block(2))
        assert await puppet.answer((1, block(1)), (2, block(2)), with_topic=with_topic) == 1
        await following.until(lambda: following.held() == 3)
        assert following.consumer.state(A) is SourceState.EXACT

    with_puppet(places, play)


def test_a_replay_that_breaks_off_degrades_and_the_feed_goes_on(places):
    async def play(puppet, following):
        await puppet.answer((0, block(0)))
        await following.until(lambda: following.held() == 1)
        await puppet.batch(5, block(1))
        await puppet.answer(has_end=False)
        await following.until(lambda: following.held() == 2)
        assert following.consumer.state(A) is SourceState.DEGRADED
        await puppet.batch(6, block(2))
        await following.until(lambda: following.held() == 3)

    with_puppet(places, play, replay_timeout_s=0.1)


def test_garbage_is_counted_and_the_feed_goes_on(places):
    rng = np.random.default_rng(0)

    async def play(puppet, following):
        await puppet.answer((0, block(0)))
        await following.until(lambda: following.held() == 1)
        await puppet.send(b"x")
        await puppet.send(b"", b"short", payload(block(1)))
        await puppet.send(b"", (1).to_bytes(8, "big"), rng.bytes(100))
        await puppet.send(b"", (2).to_bytes(8, "big"), b"")
        await puppet.batch(3, AllBlocksCleared(), block(0))
        await following.until(lambda: following.feed.num_batches == 3)
        assert following.feed.num_garbled == 2
        assert following.consumer.state(A) is SourceState.EXACT
        assert following.consumer.num_decode_errors == 2
        assert following.held() == 1

    with_puppet(places, play)


def test_a_long_replay_lets_others_run(places):
    async def main():
        with EventPublisher(**places) as publisher:
            for number in range(3000):
                publisher.publish([stored((number + 1,), [number] * 4)])
            while publisher._queue:  # what comes live during a replay is applied at its end
                await asyncio.sleep(0.01)
            async with Following(**places) as following:
                most, before = 0, 0
                while before < 3000:
                    await asyncio.sleep(0)
                    now = following.consumer.index.num_blocks
                    most, before = max(most, now - before), now
                return most

    assert asyncio.run(asyncio.wait_for(main(), 60)) < 300  # batches between two turns of the loop


def test_each_rank_has_a_socket_of_its_own(tmp_path):
    async def main():
        publishers = []
        try:
            with zmq.Context() as context, context.socket(zmq.PUB) as probe:
                base = probe.bind_to_random_port(
                    "tcp://127.0.0.1", min_port=20_000, max_port=40_000
                )
            for rank in range(2):
                context = zmq.asyncio.Context()
                live = context.socket(zmq.PUB)
                live.bind(f"tcp://127.0.0.1:{base + rank}")
                publishers.append((context, live))
            async with Following(endpoint=f"tcp://127.0.0.1:{base}", num_ranks=2) as following:
                await following.until(lambda: following.feed.connected == {0, 1})
                for rank, (_, live) in enumerate(publishers):
                    frames = (b"", bytes(8), payload(block(0), rank=rank))
                    await live.send_multipart(frames)
                second = source("a", 1)
                await following.until(lambda: following.held() == following.held(second) == 1)
        finally:
            for context, _ in publishers:
                context.destroy(linger=0)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_ranks_are_counted_from_the_port():
    assert endpoint_of_rank("tcp://h:5557", 3) == "tcp://h:5560"
    assert endpoint_of_rank("tcp://[::1]:5557", 1) == "tcp://[::1]:5558"
    assert endpoint_of_rank("inproc://x", 1) == "inproc://x_dp1"
    assert endpoint_of_rank("ipc:///x", 0) == "ipc:///x"
    for wrong in ("ipc:///x", "tcp://h:0", "tcp://h:65535", "tcp://h"):
        with pytest.raises(InvalidInput):
            endpoint_of_rank(wrong, 1)


def test_an_endpoint_that_is_none_is_refused_and_nothing_is_left_open():
    async def main():
        feed = EventFeed(A.replica, FleetConsumer(FleetIndex()), endpoint="nonsense")
        with pytest.raises(InvalidInput, match="tcp://"):
            await feed.start()
        await feed.close()

    asyncio.run(main())
