import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.soak import examples
from tests.support.toy_executor import ToyExecutor, naive_reply
from warmturn.blocks.schemes import scheme_named
from warmturn.cache.events import BlockRemoved, BlockStored
from warmturn.cache.pool import Pool
from warmturn.errors import BrokenInvariant, InvalidRequest, NeverFits
from warmturn.replica.replica import Replica
from warmturn.replica.sequence import Submission

BLOCK = 4


def make(num_blocks=8, **options):
    options = {"max_model_len": 1000, "model": "toy", **options}
    return Replica(Pool(num_blocks, BLOCK), scheme=scheme_named("native"), **options)


def ask(name, prompt, max_tokens=4, **fields):
    return Submission(name, np.array(prompt, np.int32), max_tokens=max_tokens, **fields)


class Run:
    """Drives a replica with the toy executor and gathers what comes out."""

    def __init__(self, replica, **toy):
        self.replica = replica
        self.toy = ToyExecutor(replica.pool.num_blocks, BLOCK, **toy)
        self.replies, self.turns, self.reports, self.clock = {}, {}, [], 0.0

    def step(self):
        self.clock += 1.0
        step = self.replica.plan(now=self.clock)
        if step is None:
            return None
        report = self.replica.complete(self.toy.execute(step), now=self.clock + 0.5)
        self.reports.append(report)
        for progress in report.progress:
            name = progress.sampled.request_id
            self.replies.setdefault(name, []).append(progress.sampled.token_id)
            if progress.finish_reason:
                self.turns[name] = (progress.finish_reason, progress.turn)
        self.replica.check()
        return step

    def until_idle(self):
        for _ in range(2000):
            if self.step() is None:
                return self
        raise AssertionError("the replica never came to rest")


def test_a_reply_is_that_of_generation_without_a_cache():
    run = Run(make())
    run.replica.submit(ask("a", range(10), 5), now=0.0)
    run.until_idle()
    assert run.replies["a"] == naive_reply(range(10), 5)
    reason, turn = run.turns["a"]
    assert reason == "length"
    assert (turn.prompt_tokens, turn.cached_tokens, turn.generated_tokens) == (10, 0, 5)
    assert (turn.queue_s, turn.ttft_s, turn.e2e_s) == (1.0, 1.5, 5.5)


def test_the_next_turn_prefills_only_what_is_new():
    """Turn 1 leaves 10 + 5 - 1 = 14 computed tokens, so three full blocks of four."""
    run = Run(make())
    run.replica.submit(ask("turn 1", range(10), 5), now=0.0)
    run.until_idle()
    prompt = [*range(10), *run.replies["turn 1"], 50, 51]
    run.replica.submit(ask("turn 2", prompt, 3), now=run.clock)
    step = run.step()
    assert [(w.position, len(w.token_ids)) for w in step.works] == [(12, 5)]
    run.until_idle()
    assert run.replies["turn 2"] == naive_reply(prompt, 3)
    assert run.turns["turn 2"][1].cached_tokens == 12
    assert run.turns["turn 2"][1].prefilled_tokens == 5


def test_a_stop_token_ends_the_reply_and_is_part_of_it():
    reply = naive_reply(range(6), 10)
    run = Run(make())
    run.replica.submit(ask("a", range(6), 10, stop_token_ids=frozenset({reply[2]})), now=0.0)
    run.until_idle()
    assert run.replies["a"] == reply[:3]
    assert run.turns["a"][0] == "stop"
    assert run.replica.pool.num_free == 8


def test_long_prompts_are_prefilled_in_chunks():
    run = Run(make(max_step_tokens=6))
    run.replica.submit(ask("a", range(15), 2), now=0.0)
    chunks = [[(w.position, len(w.token_ids), w.samples) for w in run.step().works] for _ in "123"]
    assert chunks == [[(0, 6, False)], [(6, 6, False)], [(12, 3, True)]]
    run.until_idle()
    assert run.replies["a"] == naive_reply(range(15), 2)


def test_decodes_come_first_and_chunks_shrink_beside_them():
    run = Run(make(num_blocks=16, max_step_tokens=10, max_step_tokens_decoding=4))
    run.replica.submit(ask("a", range(4), 6), now=0.0)
    run.step()
    run.replica.submit(ask("b", range(20, 40), 2), now=1.0)
    works = run.step().works
    assert [(w.request_id, len(w.token_ids), w.is_decode) for w in works] == [
        ("a", 1, True),
        ("b", 3, False),
    ]
    run.until_idle()
    assert run.replies["b"] == naive_reply(range(20, 40), 2)


def test_not_now_waits_and_is_admitted_in_order():
    run = Run(make(num_blocks=4))
    for name in ("a", "b", "c"):
        run.replica.submit(ask(name, range(ord(name), ord(name) + 9), 3), now=0.0)
    run.step()
    assert (run.replica.num_running, run.replica.num_waiting) == (1, 2)
    run.until_idle()
    assert list(run.turns) == ["a", "b", "c"]
    assert run.turns["c"][1].queue_s > run.turns["b"][1].queue_s > run.turns["a"][1].queue_s


def test_never_is_refused_at_submission_with_the_numbers():
    replica = make(num_blocks=4)
    with pytest.raises(NeverFits, match=r"20 tokens .* 16 tokens .* 4 blocks of 4") as error:
        replica.submit(ask("a", range(20), None), now=0.0)
    assert error.value.code == "context_length_exceeded"
    with pytest.raises(NeverFits, match="max_tokens 8"):
        replica.submit(ask("a", range(9), 8), now=0.0)
    replica.submit(ask("a", range(9), 7), now=0.0)
    with pytest.raises(InvalidRequest, match="in use"):
        replica.submit(ask("a", range(3), 1), now=0.0)
    with pytest.raises(InvalidRequest, match="no tokens"):
        replica.submit(ask("b", [], 1), now=0.0)
    with pytest.raises(InvalidRequest, match="at least 1"):
        replica.submit(ask("b", [1], 0), now=0.0)
    assert (replica.num_running, replica.num_waiting) == (0, 1)
    replica.check()


def test_without_max_tokens_a_reply_fills_what_the_replica_holds():
    run = Run(make(num_blocks=4))
    run.replica.submit(ask("a", range(9), None), now=0.0)
    run.until_idle()
    assert len(run.replies["a"]) == 16 - 9


def test_preemption_keeps_the_reply_and_reuses_what_is_still_there():
    """Two requests that both grow into the last block: the later one gives way and comes back."""
    run = Run(make(num_blocks=6))
    prompts = {"a": range(10), "b": range(50, 60)}
    for name, prompt in prompts.items():
        run.replica.submit(ask(name, prompt, 8), now=0.0)
    run.until_idle()
    assert sum(report.num_preempted for report in run.reports) >= 1
    for name, prompt in prompts.items():
        assert run.replies[name] == naive_reply(prompt, 8)
    assert run.turns["a"][1].num_preemptions == 0
    assert run.turns["b"][1].num_preemptions >= 1
    admitted = [a.request_id for report in run.reports for a in report.admitted]
    assert admitted == ["a", "b"], "a second admission is not counted as a query again"


def test_a_preempted_reply_is_computed_again_in_chunks_and_then_goes_on():
    """`a` grows into the whole pool, so all of `b` is evicted while it waits."""
    run = Run(make(num_blocks=6, max_step_tokens=4, max_step_tokens_decoding=3))
    prompts = {"a": (range(8), 16), "b": (range(50, 57), 8)}
    for name, (prompt, max_tokens) in prompts.items():
        run.replica.submit(ask(name, prompt, max_tokens), now=0.0)
    run.until_idle()
    turn = run.turns["b"][1]
    assert turn.num_preemptions == 1
    assert turn.prefilled_tokens == 2 * 7
    for name, (prompt, max_tokens) in prompts.items():
        assert run.replies[name] == naive_reply(prompt, max_tokens)


def test_salts_keep_equal_prompts_apart():
    run = Run(make())
    for name, salt in (("a", "one"), ("b", "two"), ("c", "one"), ("d", None)):
        run.replica.submit(ask(name, range(9), 1, salt=salt), now=run.clock)
        run.until_idle()
    cached = {name: turn.cached_tokens for name, (_, turn) in run.turns.items()}
    assert cached == {"a": 0, "b": 0, "c": 8, "d": 0}


def test_cancelling_frees_the_blocks_at_once_even_with_a_step_in_flight():
    run = Run(make())
    run.replica.submit(ask("a", range(9), 5), now=0.0)
    run.replica.submit(ask("b", range(20, 29), 5), now=0.0)
    step = run.replica.plan(now=1.0)
    turn = run.replica.cancel("a", now=1.2)
    assert (turn.generated_tokens, turn.ttft_s) == (0, None)
    assert run.replica.pool.num_free == 5
    run.replica.complete(run.toy.execute(step), now=1.5)
    run.replica.check()
    assert run.replica.cancel("a", now=2.0) is None
    run.until_idle()
    assert run.replica.num_running == 0
    assert "a" not in run.replies


def test_cancelling_a_waiting_request_leaves_no_trace():
    run = Run(make(num_blocks=4))
    run.replica.submit(ask("a", range(9), 3), now=0.0)
    run.replica.submit(ask("b", range(20, 29), 3), now=0.0)
    run.step()
    assert run.replica.cancel("b", now=1.0).queue_s == 1.0
    run.until_idle()
    assert list(run.turns) == ["a"]


def test_a_failed_step_loses_its_requests_only():
    run = Run(make(num_blocks=4), fail_on=[1])
    run.replica.submit(ask("a", range(9), 3), now=0.0)
    run.replica.submit(ask("b", range(20, 29), 3), now=0.0)
    step = run.replica.plan(now=1.0)
    with pytest.raises(RuntimeError):
        run.toy.execute(step)
    assert run.replica.fail(now=1.0) == ("a",)
    run.until_idle()
    assert run.replies["b"] == naive_reply(range(20, 29), 3)
    assert run.replica.pool.num_free == 4


def test_plan_and_complete_must_alternate():
    replica = make()
    replica.submit(ask("a", range(3), 3), now=0.0)
    assert replica.plan(now=0.0) is not None
    with pytest.raises(BrokenInvariant, match="not completed"):
        replica.plan(now=0.0)
    with pytest.raises(BrokenInvariant, match="not planned"):
        make().complete([], now=0.0)


def test_without_prefix_caching_nothing_is_ever_reused():
    run = Run(make(prefix_caching=False))
    for name in ("a", "b"):
        run.replica.submit(ask(name, range(9), 2), now=run.clock)
        run.until_idle()
    assert run.turns["b"][1].cached_tokens == 0
    assert run.replies["b"] == naive_reply(range(9), 2)
    assert run.replica.pool.num_cached == 0


def test_events_tell_what_the_pool_holds():
    run = Run(make(num_blocks=4, announce=True))
    run.replica.submit(ask("a", range(9), 4, salt="s"), now=0.0)
    run.until_idle()
    events = [event for report in run.reports for event in report.events]
    first, second = events
    assert isinstance(first, BlockStored)
    assert isinstance(second, BlockStored)
    assert (len(first.block_hashes), first.parent_block_hash) == (2, None)
    assert first.token_ids.tolist() == list(range(8))
    assert first.extra_keys == (("s",), None)
    assert second.parent_block_hash == first.block_hashes[-1]
    run.reports.clear()
    run.replica.submit(ask("b", range(40, 53), 3), now=run.clock)
    run.until_idle()
    removed = [e for r in run.reports for e in r.events if isinstance(e, BlockRemoved)]
    gone = [event.block_hashes[0] for event in removed]
    assert gone == [second.block_hashes[0], *reversed(first.block_hashes)], "tail first"


WORK = st.lists(
    st.tuples(
        st.integers(0, 2),  # which family of prompts: equal families share prefixes
        st.integers(1, 18),  # prompt length
        st.integers(1, 8),  # reply length
        st.integers(0, 6),  # steps to run before the next submission
        st.booleans(),  # cancel something afterwards
    ),
    min_size=1,
    max_size=10,
)


@given(
    work=WORK, num_blocks=st.integers(7, 14), budget=st.integers(1, 9), running=st.integers(1, 4)
)
@settings(max_examples=examples(150), deadline=None)
def test_no_mix_of_requests_changes_any_reply(work, num_blocks, budget, running):
    """Forks, evictions, preemptions, chunks and cancellations: replies stay those without a cache."""
    replica = make(
        num_blocks,
        max_step_tokens=budget,
        max_step_tokens_decoding=max(1, budget // 2),
        max_running=running,
    )
    run, asked = Run(replica), {}
    for i, (family, length, max_tokens, steps, cancel) in enumerate(work):
        prompt = [family] * (length // 2) + list(range(length - length // 2))
        asked[f"r{i}"] = (prompt, max_tokens)
        replica.submit(ask(f"r{i}", prompt, max_tokens), now=run.clock)
        for _ in range(steps):
            run.step()
        if cancel:
            replica.cancel(f"r{i}", now=run.clock)
    run.until_idle()
    assert replica.pool.num_free == num_blocks
    for name, (reason, turn) in run.turns.items():
        assert reason == "length"
        assert run.replies[name] == naive_reply(*asked[name])
        assert turn.prefilled_tokens >= turn.prompt_tokens - turn.cached_tokens
