"""A replica over tiers: what comes back is what was computed, whatever happens on the way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.soak import examples
from tests.support.tiered_toy import BLOCK, TieredRun
from tests.support.toy_executor import naive_reply
from warmturn.cache.learned_times import PrefillTime, TransferTime
from warmturn.cache.transfers import Lookup, Outcome, TierName, Transfer


def test_what_left_the_pool_comes_back_from_the_host():
    run = TieredRun(8)
    reply = run.ask("turn 1", range(10), 7)
    run.forget_device()
    prompt = [*range(10), *reply, 50, 51]
    assert run.ask("turn 2", prompt, 3) == naive_reply(prompt, 3)
    turn = run.turns["turn 2"]
    assert (turn.cached_tokens, dict(turn.loaded_tokens)) == (16, {"host": 16})
    assert turn.prefilled_tokens == len(prompt) - 16


def test_the_generated_part_of_a_reply_is_written_through_too():
    """10 + 7 - 1 computed tokens are four full blocks; three of them hold generated tokens."""
    run = TieredRun(8)
    run.ask("a", range(10), 7)
    run.settle()
    assert run.tiers.host.num_ready == 4


def test_blocks_come_back_from_disk_through_the_host():
    run = TieredRun(8, host_slots=16, disk_slots=32)
    run.ask("a", range(10), 7)
    run.forget_device()
    run.tiers.host.clear()
    prompt = [*range(10), *run.replies["a"], 50]
    assert run.ask("b", prompt) == naive_reply(prompt, 4)
    assert dict(run.turns["b"].loaded_tokens) == {"disk": 16}
    run.forget_device()
    run.ask("c", prompt)
    assert dict(run.turns["c"].loaded_tokens) == {"host": 16}, "promoted on the hit"


def test_another_replica_goes_on_where_the_first_one_stopped():
    shared = {}
    first = TieredRun(8, host_slots=16, shared=shared)
    reply = first.ask("turn 1", range(10), 7)
    first.settle()
    second = TieredRun(8, host_slots=16, shared=shared)
    prompt = [*range(10), *reply, 50]
    assert second.ask("turn 2", prompt) == naive_reply(prompt, 4)
    assert dict(second.turns["turn 2"].loaded_tokens) == {"shared": 16}


def test_another_salt_finds_nothing_in_any_tier():
    shared = {}
    run = TieredRun(8, host_slots=16, disk_slots=16, shared=shared)
    run.ask("a", range(10), 7, salt="mine")
    run.forget_device()
    run.ask("b", range(10), 7, salt="yours")
    assert run.turns["b"].cached_tokens == 0
    run.forget_device()
    run.ask("c", range(10), 7, salt="mine")
    assert run.turns["c"].cached_tokens == 8


def test_a_loading_prompt_holds_up_nobody():
    run = TieredRun(16)
    run.ask("a", range(20), 4)
    run.forget_device()
    run.submit("b", range(20), 4)
    run.submit("c", range(40, 49), 4)
    works = [run.step().works for _ in range(4)]
    assert all([w.request_id for w in each] == ["c"] for each in works)
    assert run.replies["c"] == naive_reply(range(40, 49), 4)
    run.run()
    assert run.replies["b"] == naive_reply(range(20), 4)


def test_the_front_is_computed_while_the_back_loads():
    """A tier of a block in 4 ms beside a processor of a block in 4 ms: half and half."""
    run = TieredRun(32)
    run.ask("a", range(100), 1)
    run.forget_device()
    run.tiers.host_time = TransferTime(1e-6, 32 / 0.004)
    run.tiers.prefill = PrefillTime(1000.0)
    run.submit("b", range(100), 1)
    step = run.step()
    (work,) = step.works
    assert work.position == 0
    assert len(work.token_ids) % BLOCK == 0
    assert 8 <= len(work.token_ids) // BLOCK <= 16
    run.run()
    assert run.replies["b"] == naive_reply(range(100), 1)
    assert run.turns["b"].prefilled_tokens == len(work.token_ids) + 4
    assert run.tiers.stats.decisions == {"split": 1}


def test_a_slow_tier_is_not_asked_when_computing_is_faster():
    run = TieredRun(8, host_slots=8, disk_slots=16)
    run.ask("a", range(20), 1)
    run.forget_device()
    run.tiers.host.clear()
    for _ in range(5):
        run.tiers.lower[TierName.DISK].time.observe(32, 1.0, now=run.clock)
    run.ask("b", range(20), 1)
    assert run.turns["b"].cached_tokens == 0
    assert run.tiers.stats.decisions == {"recompute": 1}


def test_a_store_that_stalls_costs_little_more_than_computing():
    """Nothing of the load ever arrives: the request computes, more the longer it waited."""
    run = TieredRun(64, host_slots=64, disk_slots=64)
    run.ask("a", range(200), 1)
    run.forget_device()
    run.tiers.host.clear()
    started = run.clock
    run.submit("b", range(200), 1)
    while "b" not in run.turns:
        if run.step() is None:
            run.clock += 0.001
    alone_s = 200 * run.token_s
    assert run.clock - started < 1.3 * alone_s
    assert run.replies["b"] == naive_reply(range(200), 1)
    assert run.tiers.stats.num_given_up == 49
    run.run()  # the reads end at last: they land on the host, and nowhere else
    assert run.replica.pool.num_free == 64


def test_a_block_that_proves_wrong_is_computed_and_the_rest_is_used():
    run = TieredRun(16)
    run.ask("a", range(40), 1)
    run.forget_device()
    bad = []

    def spoil(order, key):
        if isinstance(order, Transfer) and order.target == TierName.DEVICE and not bad:
            bad.append(key)
        return Outcome.WRONG if key in bad and order.target == TierName.DEVICE else None

    run.stores.spoil = spoil
    assert run.ask("b", range(40), 3) == naive_reply(range(40), 3)
    assert run.turns["b"].cached_tokens == 8 * BLOCK
    assert run.tiers.stats.problems == {("host", "wrong"): 1}
    run.forget_device()
    run.stores.spoil = lambda order, key: None
    run.ask("c", range(40), 3)
    assert run.turns["c"].cached_tokens == 9 * BLOCK, "what was wrong was computed and stored anew"


def test_a_shared_store_that_does_not_answer_is_not_waited_for_long():
    run = TieredRun(64, host_slots=64, shared={})
    run.submit("a", range(200), 2)
    assert run.step() is None
    run.clock += 0.05  # a tenth of what computing would take, at the assumed rate
    while "a" not in run.turns:
        assert run.step() is not None
    assert run.tiers.stats.lookups["late"] == 1


def test_a_shared_store_that_fails_is_left_alone_for_a_while():
    run = TieredRun(8, host_slots=16, shared={})
    run.stores.spoil = lambda order, key: (
        Outcome.FAILED if isinstance(order, Lookup) or order.target == TierName.SHARED else None
    )
    for i in range(6):
        assert run.ask(f"r{i}", range(i, i + 9)) == naive_reply(range(i, i + 9), 4)
    assert run.tiers.stats.lookups["failed"] == 3
    assert run.tiers.stats.skipped["shared", "closed"] > 0


def test_cancelling_while_blocks_are_on_their_way_frees_all_of_them():
    run = TieredRun(8)
    run.ask("a", range(20), 1)
    run.forget_device()
    run.submit("b", range(20), 1)
    run.step()
    run.replica.cancel("b", now=run.clock)
    assert run.replica.pool.num_free < 8, "a copy may still be written there"
    run.settle()
    assert run.replica.pool.num_free == 8
    run.replica.check()


def test_events_tell_what_lies_in_which_tier():
    run = TieredRun(8, host_slots=4, disk_slots=8, announce=True)
    run.ask("a", range(9), 1)
    run.settle()
    media = [event.medium for event in run.events]
    assert media == ["GPU", "CPU", "STORAGE"]
    assert run.events[1].block_hashes == run.events[0].block_hashes
    run.ask("b", range(50, 62), 1)
    run.ask("c", range(70, 82), 1)
    run.settle()
    removed = [e for e in run.events if type(e).__name__ == "BlockRemoved"]
    assert {e.medium for e in removed if e.block_hashes[0] in run.events[0].block_hashes} == {"CPU"}


@pytest.mark.parametrize("host_slots", [1, 2, 5])
def test_a_host_tier_that_is_too_small_loses_no_request(host_slots):
    run = TieredRun(16, host_slots=host_slots, disk_slots=32)
    prompts = {f"r{i}": [*range(8), *range(10 * i, 10 * i + 20)] for i in range(4)}
    for name, prompt in prompts.items():
        run.ask(name, prompt)
    run.forget_device()
    for name, prompt in prompts.items():
        run.submit(f"{name} again", prompt)
    run.run()
    for name, prompt in prompts.items():
        assert run.replies[f"{name} again"] == naive_reply(prompt, 4)


SPOILT = (Outcome.WRONG, Outcome.MISSING, Outcome.FAILED)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60), deadline=None)
def test_whatever_happens_replies_are_those_without_any_cache(seed):
    """Random conversations, sizes, delays, faults, cancellations; moves in any order."""
    rng = np.random.default_rng(seed)
    run = TieredRun(
        int(rng.integers(8, 24)),
        host_slots=int(rng.integers(1, 40)),
        disk_slots=int(rng.integers(1, 60)) if rng.random() < 0.7 else None,
        shared={} if rng.random() < 0.5 else None,
        max_step_tokens=int(rng.integers(3, 40)),
        max_step_tokens_decoding=int(rng.integers(3, 20)),
        announce=bool(rng.random() < 0.3),
    )
    run.block_s = float(10.0 ** rng.uniform(-6, -1))
    share = rng.choice([0.0, 0.1, 0.5])
    run.stores.spoil = lambda order, key: rng.choice(SPOILT) if rng.random() < share else None
    conversations = [[int(t) for t in rng.integers(0, 9, 6)] for _ in range(3)]
    asked, open_now = {}, {}
    for action in range(150):
        draw = rng.random()
        if draw < 0.12 and len(open_now) < 3:
            talk = int(rng.integers(3))
            if talk in open_now.values():
                continue
            prompt = conversations[talk]
            if len(prompt) > (run.replica.pool.num_blocks - 2) * BLOCK - 8:
                prompt = conversations[talk] = prompt[:6]
            name = f"r{action}"
            max_tokens = int(rng.integers(1, 8))
            salt = None if talk else "tenant"
            run.submit(name, prompt, max_tokens, salt=salt)
            asked[name], open_now[name] = (list(prompt), max_tokens), talk
        elif draw < 0.15 and open_now:
            name = str(rng.choice(sorted(open_now)))
            if run.replica.cancel(name, now=run.clock) is not None:
                del asked[name], open_now[name]
                run.replies.pop(name, None)
        elif draw < 0.55:
            run.move(int(rng.integers(50)))
        else:
            run.step()
            run.clock += 0.0005
        for name in [n for n in open_now if n in run.turns]:
            talk = open_now.pop(name)
            conversations[talk] = [*asked[name][0], *run.replies[name], int(rng.integers(9))]
    run.run()
    run.settle()
    for name, (prompt, max_tokens) in asked.items():
        assert run.replies[name] == naive_reply(prompt, max_tokens), name
    assert run.replica.pool.num_free == run.replica.pool.num_blocks
    assert run.tiers.is_idle
