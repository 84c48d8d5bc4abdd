"""The engine's loop over real stores and threads, with the toy executor."""

import asyncio
import time

import numpy as np

from tests.engine.test_loop import Notes
from tests.support.tiered_stores import ToyDevice, fingerprint
from tests.support.toy_executor import ToyExecutor, naive_reply
from warmturn.blocks.schemes import scheme_named
from warmturn.cache.events import TierBlocksCleared
from warmturn.cache.pool import Pool
from warmturn.cache.tiers import TierManager
from warmturn.engine.api import EngineRequest
from warmturn.engine.loop import Engine
from warmturn.replica.replica import Replica
from warmturn.stores.arena import HostArena
from warmturn.stores.mover import Mover


class Toy(ToyExecutor):
    def execute(self, step, choices=None):
        time.sleep(0.001 * step.num_tokens)  # or computing is faster than loading, and chosen
        return super().execute(step)


def test_conversations_at_once_in_a_pool_too_small_for_them_come_back_from_the_host():
    """Six conversations of three turns in a pool that holds two: replies as without a cache."""
    tiers = TierManager(block_bytes=32, block_size=4, host_slots=200)
    replica = Replica(
        Pool(16, 4),
        scheme=scheme_named("native"),
        model="toy",
        max_model_len=1000,
        tiers=tiers,
        announce=True,
    )
    toy, notes, events = Toy(16, 4), Notes(), []
    arena = HostArena(200, 32, fingerprint().digest)
    engine = Engine(
        replica,
        toy,
        eos_token_ids=frozenset(),
        observer=notes,
        publish=events.extend,
        start_mover=lambda on_done: Mover(arena, ToyDevice(toy.memory), on_done=on_done),
    )

    async def ask(name, prompt):
        request = EngineRequest(name, np.array(prompt, np.int32), max_tokens=5)
        reply = [t async for o in engine.generate(request) for t in o.token_ids]
        assert reply == naive_reply(prompt, 5), name
        return reply

    async def talk(number):
        prompt = [*range(10 * number, 10 * number + 9)]
        for turn in range(3):
            reply = await ask(f"{number}/{turn}", prompt)
            prompt = [*prompt, *reply, number]

    async def main():
        await engine.start()
        try:
            await asyncio.gather(*map(talk, range(6)))
            assert await engine.reset_prefix_cache()
            assert events[-1] == TierBlocksCleared("GPU")
            await ask("after", range(9))
        finally:
            await engine.stop()

    asyncio.run(main())
    loaded = [values[2].get("host", 0) for values in notes.of("admitted")]
    assert len(loaded) == 19
    assert sum(loaded[:-1]) > 0
    assert loaded[-1] == 8, "emptying the pool leaves the host"
    replica.check()
    assert replica.pool.num_free == 16
