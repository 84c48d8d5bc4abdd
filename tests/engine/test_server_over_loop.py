"""Server, loop, replica and pool together, without a model: clients come, misbehave and leave."""

import asyncio

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.test_server_fuzz import bodies
from tests.support.soak import examples
from tests.support.tiny_renderer import TinyRenderer
from tests.support.tiny_server import HELLO
from tests.support.toy_executor import ToyExecutor
from warmturn.blocks.schemes import scheme_named
from warmturn.cache.pool import Pool
from warmturn.engine.loop import Engine
from warmturn.engine.metrics import EngineMetrics
from warmturn.engine.server import create_app
from warmturn.replica.replica import Replica
from warmturn.session.continuation import Continuations

CHAT = "/v1/chat/completions"
NUM_BLOCKS, BLOCK_SIZE = 24, 8


class Whole:
    """Everything but the weights, on one event loop that outlives many requests."""

    def __init__(self):
        self.runner = asyncio.Runner()
        self.replica = Replica(
            Pool(NUM_BLOCKS, BLOCK_SIZE),
            scheme=scheme_named("native"),
            model="tiny",
            max_model_len=160,
            max_step_tokens=24,
            max_step_tokens_decoding=8,
        )
        metrics = EngineMetrics("tiny", max_model_len=160)
        executor = ToyExecutor(NUM_BLOCKS, BLOCK_SIZE, vocab=128)
        self.engine = Engine(self.replica, executor, eos_token_ids=frozenset({7}), observer=metrics)
        self.runner.run(self.engine.start())
        app = create_app(
            self.engine,
            TinyRenderer(),
            model_name="tiny",
            metrics=metrics,
            continuations=Continuations(max_tokens=5000),
            dev_endpoints=True,
        )
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t")

    async def post(self, path, body, patience_s=None):
        """Send a body; a client without patience leaves."""
        try:
            async with asyncio.timeout(patience_s):
                return await self.client.post(path, json=body)
        except TimeoutError:
            return None

    async def together(self, requests):
        answers = await asyncio.gather(*(self.post(*request) for request in requests))
        healthy = await self.post(CHAT, HELLO | {"max_tokens": 3, "ignore_eos": True})
        return answers, healthy

    def close(self):
        self.runner.run(self.client.aclose())
        self.runner.run(self.engine.stop())
        self.runner.close()


@pytest.fixture(scope="module")
def whole():
    made = Whole()
    yield made
    made.close()


request = st.tuples(
    st.sampled_from([CHAT, CHAT, "/v1/completions", "/tokenize", "/reset_prefix_cache"]),
    bodies,
    st.sampled_from([None, None, 0.0, 0.001, 0.01]),
)


@given(requests=st.lists(request, min_size=1, max_size=6))
@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_that_clients_send_or_break_off_stops_the_loop(whole, requests):
    answers, healthy = whole.runner.run(whole.together(requests))
    assert {a.status_code for a in answers if a is not None} <= {200, 400, 404}
    assert healthy.status_code == 200
    assert healthy.json()["usage"]["completion_tokens"] == 3
    assert whole.engine.failure is None
    assert whole.replica.num_running == whole.replica.num_waiting == 0
    assert whole.replica.pool.num_free == NUM_BLOCKS
    whole.replica.check()


def test_more_clients_than_the_pool_holds_are_all_answered(whole):
    """Forty at once in a pool for two or three: the rest waits, nobody starves."""
    body = HELLO | {"max_tokens": 40, "ignore_eos": True}

    async def crowd():
        bodies_ = [body | {"cache_salt": str(i)} for i in range(40)]
        return await asyncio.gather(*(whole.post(CHAT, b) for b in bodies_))

    answers = whole.runner.run(crowd())
    assert [a.json()["usage"]["completion_tokens"] for a in answers] == [40] * 40
    assert len({a.json()["choices"][0]["message"]["content"] for a in answers}) == 1
