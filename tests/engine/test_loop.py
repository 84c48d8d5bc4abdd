import asyncio
from contextlib import aclosing

import numpy as np
import pytest

from tests.support.toy_executor import ToyExecutor, naive_reply
from warmturn.blocks.schemes import scheme_named
from warmturn.cache.events import AllBlocksCleared, BlockStored
from warmturn.cache.pool import Pool
from warmturn.engine.api import EngineRequest, SamplingParams
from warmturn.engine.loop import Engine
from warmturn.errors import EngineFailure, NeverFits, PeerError
from warmturn.replica.replica import Replica


class Notes:
    """An observer that writes everything down."""

    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        return lambda *values: self.seen.append((name, *values))

    def of(self, name):
        return [values for kind, *values in self.seen if kind == name]


class Rig:
    """An engine over the toy executor, small enough to follow."""

    def __init__(self, num_blocks=8, *, eos=frozenset(), fail_on=()):
        pool = Pool(num_blocks, 4)
        self.replica = Replica(
            pool, scheme=scheme_named("native"), model="toy", max_model_len=1000, announce=True
        )
        self.toy = ToyExecutor(num_blocks, 4, fail_on)
        self.notes, self.published, self.choices = Notes(), [], []
        self.engine = Engine(
            self.replica,
            self,
            eos_token_ids=eos,
            observer=self.notes,
            publish=self.published.extend,
        )

    def warm_up(self):
        self.is_warm = True

    def execute(self, step, choices):
        assert self.is_warm
        self.choices.append(choices)
        return self.toy.execute(step)

    async def ask(self, name, prompt, max_tokens=4, **fields):
        request = EngineRequest(name, np.array(prompt, np.int32), max_tokens=max_tokens, **fields)
        return [output async for output in self.engine.generate(request)]


def run(coroutine_of, **options):
    """Run `coroutine_of(rig)` with a started engine."""

    async def main():
        rig = Rig(**options)
        await rig.engine.start()
        try:
            return rig, await coroutine_of(rig)
        finally:
            await rig.engine.stop()

    return asyncio.run(main())


def tokens(outputs):
    return [token for output in outputs for token in output.token_ids]


def test_outputs_come_token_by_token_and_the_last_one_says_why():
    rig, outputs = run(lambda rig: rig.ask("a", range(9)))
    assert tokens(outputs) == naive_reply(range(9), 4)
    assert [output.finish_reason for output in outputs] == [None, None, None, "length"]
    assert outputs[-1].metrics.generated_tokens == 4
    assert rig.notes.of("admitted") == [[9, 0, {}]]
    assert [values[1] for values in rig.notes.of("finished")] == ["length"]
    assert [values[0] for values in rig.notes.of("step")] == [9, 1, 1, 1]


def test_requests_at_once_share_steps_and_keep_their_replies():
    async def both(rig):
        return await asyncio.gather(rig.ask("a", range(9)), rig.ask("b", range(20, 26)))

    rig, (a, b) = run(both)
    assert (tokens(a), tokens(b)) == (naive_reply(range(9), 4), naive_reply(range(20, 26), 4))
    assert max(len(step.works) for step in rig.toy.steps) == 2


def test_an_end_token_ends_the_reply_unless_it_is_ignored():
    reply = naive_reply(range(5), 6)
    eos = frozenset({reply[1]})
    _, outputs = run(lambda rig: rig.ask("a", range(5), 6), eos=eos)
    assert tokens(outputs) == reply[:2]
    assert outputs[-1].finish_reason == "stop"
    _, outputs = run(lambda rig: rig.ask("a", range(5), 6, ignore_eos=True), eos=eos)
    assert tokens(outputs) == reply


def test_min_tokens_bans_every_end_until_it_is_reached():
    sampling = SamplingParams(temperature=0, min_tokens=2)
    rig, _ = run(
        lambda rig: rig.ask("a", range(5), 4, sampling=sampling, stop_token_ids=frozenset({5})),
        eos=frozenset({3}),
    )
    banned = [choices["a"].banned_token_ids for choices in rig.choices]
    assert banned == [(3, 5), (3, 5), (), ()]
    assert [choices["a"].index for choices in rig.choices] == [0, 1, 2, 3]


def test_sampling_without_a_seed_gets_one():
    rig, _ = run(lambda rig: rig.ask("a", range(5), 2, sampling=SamplingParams(temperature=1)))
    seeds = {choices["a"].params.seed for choices in rig.choices}
    assert len(seeds) == 1
    assert None not in seeds


def test_never_is_raised_before_the_first_output():
    async def refused(rig):
        with pytest.raises(NeverFits, match="8 blocks of 4"):
            await rig.ask("a", range(40))
        return await rig.ask("b", range(5))

    _, outputs = run(refused)
    assert len(outputs) == 4


def test_closing_the_iterator_cancels_and_frees_the_blocks_at_once():
    async def leave(rig):
        request = EngineRequest("a", np.arange(9, dtype=np.int32), max_tokens=20)
        async with aclosing(rig.engine.generate(request)) as outputs:
            async for _ in outputs:
                break
        assert rig.engine.stats().kv_cache_usage_share == 0
        assert rig.engine.stats().num_running == 0
        return await rig.ask("b", range(5))

    rig, outputs = run(leave)
    assert tokens(outputs) == naive_reply(range(5), 4)
    assert [values[1] for values in rig.notes.of("finished")] == ["abort", "length"]


def test_a_cancelled_task_frees_its_blocks():
    async def leave(rig):
        task = asyncio.create_task(rig.ask("a", range(9), 20))
        while not rig.toy.steps:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return rig.engine.stats().num_running

    assert run(leave)[1] == 0


def test_a_failed_step_fails_its_requests_and_no_others():
    async def both(rig):
        with pytest.raises(EngineFailure, match="step 1 failed: RuntimeError"):
            await rig.ask("a", range(9))
        return await rig.ask("b", range(9))

    rig, outputs = run(both, fail_on=[1])
    assert tokens(outputs) == naive_reply(range(9), 4)
    assert rig.engine.stats().num_waiting == 0


def test_a_broken_invariant_ends_the_engine_loudly(caplog):
    """A hung client is the one thing worse than an error."""

    async def broken(rig):
        rig.replica.plan = None  # calling it raises TypeError
        with pytest.raises(EngineFailure, match="the engine stopped: TypeError"):
            await rig.ask("a", range(9))
        with pytest.raises(EngineFailure):
            await rig.ask("b", range(9))
        return rig.engine.failure

    assert run(broken)[1] is not None
    assert "a defect of warmturn itself" in caplog.text


def test_stopping_fails_what_is_not_finished():
    async def stop(rig):
        task = asyncio.create_task(rig.ask("a", range(9), 20))
        while not rig.toy.steps:
            await asyncio.sleep(0)
        await rig.engine.stop()
        with pytest.raises(PeerError, match="shutting down"):
            await task

    run(stop)


def test_stored_blocks_are_published_and_a_reset_too():
    async def reset(rig):
        await rig.ask("a", range(9))
        assert await rig.engine.reset_prefix_cache() is True
        return rig.engine.stats().num_cached_blocks

    rig, cached = run(reset)
    assert cached == 0
    assert [type(event) for event in rig.published] == [BlockStored, BlockStored, AllBlocksCleared]


def test_a_reset_is_refused_while_blocks_are_held():
    async def reset(rig):
        task = asyncio.create_task(rig.ask("a", range(9), 20))
        while not rig.toy.steps:
            await asyncio.sleep(0)
        refused = await rig.engine.reset_prefix_cache()
        await task
        return refused

    rig, cleared = run(reset)
    assert cleared is False
    assert AllBlocksCleared() not in rig.published


def test_the_idle_engine_checks_its_invariants(monkeypatch):
    async def idle(rig):
        await rig.ask("a", range(9))
        checked = asyncio.Event()
        monkeypatch.setattr(rig.replica, "check", checked.set)
        await asyncio.wait_for(checked.wait(), 5)
        return True

    monkeypatch.setattr("warmturn.engine.loop.IDLE_CHECK_S", 0.01)
    assert run(idle)[1]
