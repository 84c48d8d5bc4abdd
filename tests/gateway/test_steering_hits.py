"""Routing by what replicas hold: told by events, guessed from routes, compared by bytes."""

import asyncio
import json

import numpy as np
import pytest

from tests.support import tiny_prompts
from tests.support.calls import call, chat, complete, drive, usage
from tests.support.tiny_fleet import payload, source, stored
from warmturn.gateway import prompt_tokens
from warmturn.gateway.metrics_reading import ReplicaMetrics
from warmturn.gateway.prompt_tokens import PromptTokens
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.served_models import ServedModel
from warmturn.gateway.steering import GatewaySteering
from warmturn.router import Affinity, Price
from warmturn.session.tenant import IdentityRule, SaltKey, SaltRule
from warmturn.types import ReplicaId

SIZE = 4
LONG = "tell me about the weather, at length and with feeling: " * 4


@pytest.fixture
def steering_for(tmp_path):
    made = []

    def build(*specs, policy=None, has_tokenizer=True, models=(), **options) -> GatewaySteering:
        prompts = None
        if has_tokenizer:
            renderer = tiny_prompts.renderer(tmp_path)
            prompts = PromptTokens(renderer, today=lambda: tiny_prompts.NOW)
            made.append(prompts)
        named = [ServedModel("m", prompts=prompts), *models]
        steering = GatewaySteering(policy or Price(), models=named, **options)
        for spec in specs or [replica(name) for name in "abcd"]:
            steering.add_replica(spec, 0.0)
        return steering

    yield build
    for prompts in made:
        prompts.close()


def replica(name, **fields) -> ReplicaSpec:
    known = {"models": ("m",), "block_size": SIZE, "capacity_tokens": 200_000}
    return ReplicaSpec(ReplicaId(name), **known | fields)


def turn(steering, *texts, now, cached=None, session="s", **headers):
    made = call(chat(*texts), x_session_id=session, **headers)
    return drive(steering, made, now=now, outcome=complete(usage=usage(cached=cached)))


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_a_later_turn_is_expected_to_find_the_former_prompt(steering_for, has_tokenizer):
    steering = steering_for(has_tokenizer=has_tokenizer)
    first = turn(steering, LONG, now=0.0)
    second = turn(steering, LONG, "well", "go on", now=1.0)
    assert second.source == first.source
    assert first.prompt_tokens - 20 <= second.placement.predicted_tokens < second.prompt_tokens
    assert second.told.blocks.is_chunked is not has_tokenizer
    assert second.wants_reply is has_tokenizer
    assert second.chain is not None


def test_without_a_policy_that_looks_at_hits_no_prompt_is_told(steering_for):
    steering = steering_for(policy=Affinity())
    assert turn(steering, LONG, now=0.0).told is None
    assert steering_for(policy=Affinity(), shadow=Price()).dispatcher.wants_hits


def test_a_new_session_is_expected_to_find_a_beginning_it_shares(steering_for):
    steering = steering_for()
    first = turn(steering, LONG, now=0.0, session="one")
    other = turn(steering, LONG, now=1.0, session="two")
    hits = {c.source: c.hit.any_tokens for c in other.placement.candidates}
    assert hits.pop(first.source) > 0.9 * first.prompt_tokens
    assert set(hits.values()) == {0}


def test_two_tenants_with_one_prompt_share_nothing(steering_for):
    key = SaltKey(b"a key of all gateways, for tests")
    rule = SaltRule(key, IdentityRule("authorization", "bearer"))
    for has_tokenizer in (True, False):
        steering = steering_for(replica("a"), salts=rule, has_tokenizer=has_tokenizer)
        turn(steering, LONG, now=0.0, session="x", authorization="Bearer sk-alice-1")
        same = turn(steering, LONG, now=1.0, session="y", authorization="Bearer sk-alice-1")
        other = turn(steering, LONG, now=2.0, session="x", authorization="Bearer sk-bob-2")
        assert same.placement.predicted_tokens > 0
        assert other.placement.predicted_tokens == 0


def test_two_models_and_an_adapter_of_one_share_nothing(steering_for):
    specs = [replica("a", models=("m", "lora", "other"))]
    models = [ServedModel("lora", base="m"), ServedModel("other")]
    steering = steering_for(*specs, models=models, has_tokenizer=False)
    for model in ("m", "lora", "other"):
        for number in range(2):
            made = drive(steering, call(chat(LONG, model=model), x_session_id=model), now=number)
            assert (made.placement.predicted_tokens > 0) is (number == 1), model


def test_events_tell_what_is_held_and_a_burst_is_believed_before_them(steering_for):
    specs = [replica(name, events_endpoint="tcp://h:1") for name in "ab"]
    steering = steering_for(*specs)
    prompt = call(chat(LONG), x_session_id="s")
    ids = tiny_ids(steering, LONG)
    hashes = range(1, len(ids) // SIZE + 1)
    event = payload(stored(hashes, ids[: len(ids) // SIZE * SIZE]))
    (consumer,) = steering.prompts.consumers(ReplicaId("b"))
    consumer.receive(ReplicaId("b"), 0, event)
    assert {r.source.replica: r.events for r in steering.replicas(0.0)} == {
        "a": "UNKNOWN", "b": "EXACT",
    }  # fmt: skip
    made = drive(steering, prompt, now=0.0)
    assert made.source == source("b")
    assert made.placement.predicted_tokens == (len(ids) - 1) // SIZE * SIZE
    burst = []
    for number in range(3):  # nothing of this prompt was announced yet
        later = steering.admit(call(chat("another, " + LONG), x_session_id=f"n{number}"), 1.0)
        steering.place(later, 1.0)
        steering.sent(later, 1.0)
        burst.append(later)
    on_b = [t.placement.predicted_tokens for t in burst if t.source == source("b")]
    assert on_b[-1] > 40 if len(on_b) > 1 else on_b == [0]


def tiny_ids(steering, *texts):
    prompts = steering._models.named("m").prompts
    return prompts._renderer.render(chat(*texts)["messages"], now=tiny_prompts.NOW).token_ids


def test_a_restart_takes_the_credit_away_however_it_is_noticed(steering_for):
    seen = ReplicaMetrics(start_s=1000.0)

    def by_start_time(steering):
        steering.observe_metrics(ReplicaId("a"), ReplicaMetrics(start_s=2000.0), 5.0)

    def by_health(steering):
        steering.set_alive(ReplicaId("a"), False, "connection refused", 4.0)
        steering.set_alive(ReplicaId("a"), True, "", 5.0)

    def not_at_all(steering):
        steering.set_alive(ReplicaId("a"), False, "time-out", 4.0)
        steering.observe_metrics(ReplicaId("a"), seen, 4.5)
        steering.set_alive(ReplicaId("a"), True, "", 5.0)

    cases = ((by_start_time, 0), (by_health, 0), (not_at_all, 40))
    for happens, least in cases:
        for options in ({}, {"has_tokenizer": False}, {"policy": Affinity()}):
            steering = steering_for(replica("a"), **options)
            steering.observe_metrics(ReplicaId("a"), seen, 0.0)
            turn(steering, LONG, now=1.0)
            happens(steering)
            predicted = turn(steering, LONG, "well", "on", now=6.0).placement.predicted_tokens
            assert predicted >= least, (happens.__name__, options)
            assert predicted == 0 or least > 0, (happens.__name__, options)


def test_hits_that_stop_coming_are_forgotten(steering_for):
    steering = steering_for(replica("a"))
    predicted = []
    for number in range(40):
        made = turn(steering, LONG, session=f"s{number}", now=float(number), cached=0)
        predicted.append(made.placement.predicted_tokens)
    assert max(predicted) > 0
    assert predicted.count(0) >= 2  # the first, and again after it was forgotten
    (state,) = steering.replicas(50.0)
    assert state.delivered_share > 0.25


def test_a_tokenizer_that_fails_leaves_affinity_and_is_counted(steering_for, monkeypatch, caplog):
    steering = steering_for()
    prompts = steering._models.named("m").prompts

    def fail(*_):
        raise ZeroDivisionError("the secret prompt")

    monkeypatch.setattr(prompts, "tell", fail)
    turns = [turn(steering, LONG, now=float(number)) for number in range(3)]
    assert len({t.source for t in turns}) == 1
    assert steering.num_routing_errors == 3
    assert "secret" not in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_prompt_the_template_refuses_is_compared_by_bytes(steering_for):
    steering = steering_for()
    image = [{"type": "image_url", "image_url": {"url": "data:" + "x" * 500}}]
    first, second = (turn(steering, image, now=float(n)) for n in range(2))
    assert second.told.blocks.is_chunked
    assert second.placement.predicted_tokens > 0
    assert steering.prompts.num_chunked == 2
    assert steering.num_routing_errors == 0
    assert first.source == second.source


def test_a_cold_prompt_waits_briefly_for_the_thread_else_goes_by_bytes(steering_for, monkeypatch):
    monkeypatch.setattr(prompt_tokens, "MAX_NEW_CHARS", 100)
    steering = steering_for()

    async def main():
        loop = asyncio.get_running_loop()
        monkeypatch.setattr("warmturn.gateway.prompt_beliefs.COLD_WAIT_S", 5.0)
        quick = await steering.admit(call(chat(LONG), x_session_id="quick"), 0.0)
        assert not quick.told.blocks.is_chunked
        monkeypatch.setattr("warmturn.gateway.prompt_beliefs.COLD_WAIT_S", 0.0)
        slow = await steering.admit(call(chat(LONG * 100), x_session_id="slow"), 0.0)
        assert slow.told.blocks.is_chunked
        steering.place(slow, 0.0)
        steering.sent(slow, 0.0)
        prompts = steering._models.named("m").prompts
        while prompts.num_states < 2:
            await asyncio.sleep(0.005)
        del loop
        later = steering.admit(call(chat(LONG * 100, "yes", "on"), x_session_id="slow"), 1.0)
        steering.place(later, 1.0)
        assert not later.told.blocks.is_chunked
        assert later.source == slow.source
        assert later.placement.predicted_tokens > 0.9 * later.prompt_tokens

    asyncio.run(main())


def test_a_reply_is_held_before_the_turn_that_brings_it_back(steering_for):
    steering = steering_for()
    answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": LONG}}]}).encode()

    async def main():
        outcome = complete(usage=usage(), reply=answer)
        first = drive(steering, call(chat("hello"), x_session_id="s"), now=0.0, outcome=outcome)
        (state,) = [r for r in steering.replicas(0.0) if r.source == first.source]
        while steering.prompts.beliefs_of("a")[0].index.num_blocks <= state.index_blocks:
            await asyncio.sleep(0.005)
        later = steering.admit(call(chat("hello", LONG, "more"), x_session_id="s"), 1.0)
        steering.place(later, 1.0)
        return first, later

    first, later = asyncio.run(main())
    assert later.placement.predicted_tokens > first.prompt_tokens + 0.8 * len(LONG)


def test_explaining_counts_tokens_and_remembers_nothing(steering_for):
    steering = steering_for()
    turn(steering, LONG, now=0.0)
    prompts = steering._models.named("m").prompts
    before = prompts.num_states
    told = steering.explain(call(chat(LONG, "well", "go on"), x_session_id="new"), 1.0)
    assert told.is_counted
    assert told.turn.prompt_tokens == len(tiny_ids(steering, LONG, "well", "go on"))
    assert prompts.num_states == before
    assert steering.dispatcher.num_open == 0


def test_what_is_held_is_bounded_by_the_real_capacity(steering_for):
    steering = steering_for(replica("a", capacity_tokens=None))
    steering.observe_metrics(ReplicaId("a"), ReplicaMetrics(capacity_tokens=400, block_size=4), 0.0)
    rng = np.random.default_rng(0)
    for number in range(30):
        text = "".join(rng.choice(list("abcdef "), 80))
        turn(steering, text, session=f"s{number}", now=float(number))
    assert steering.replicas(40.0)[0].index_blocks <= 100
