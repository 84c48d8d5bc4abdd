"""Admission, placing and learning for the data path, without any socket."""

import pytest

from tests.support.calls import call, chat, complete, drive, usage
from tests.support.tiny_fleet import source
from warmturn.errors import InvalidInput
from warmturn.gateway.metrics_reading import ReplicaMetrics
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.served_models import ServedModel
from warmturn.gateway.steering import AdmissionLimit, GatewaySteering
from warmturn.gateway.turns import Api, Ending, Outcome, Refused
from warmturn.router import Affinity, Price, RoundRobin
from warmturn.session.tenant import Anonymous, IdentityRule, SaltKey, SaltRule
from warmturn.types import ReplicaId

KEY = SaltKey(b"a key of all gateways, for tests")
BY_KEY = SaltRule(KEY, IdentityRule("authorization", "bearer"))


def steering(*replicas, policy=None, **options) -> GatewaySteering:
    made = GatewaySteering(policy or Affinity(), **options)
    for spec in replicas or tuple(ReplicaSpec(ReplicaId(f"r{i}")) for i in range(4)):
        made.add_replica(spec, 0.0)
    return made


def spec(name, **fields) -> ReplicaSpec:
    return ReplicaSpec(ReplicaId(name), **fields)


def refusal(made, a_call) -> Refused:
    with pytest.raises(Refused) as raised:
        made.place(made.admit(a_call, 0.0), 0.0)
    assert made.refusals[raised.value.status] == 1
    return raised.value


def test_turns_of_one_session_go_to_one_replica_and_say_so():
    made = steering()
    turns = [drive(made, call(x_session_id="s"), now=float(i)) for i in range(4)]
    assert len({turn.source for turn in turns}) == 1
    assert [t.placement.reason for t in turns] == ["new", "kept", "kept", "kept"]
    assert made.response_headers(turns[1]) == (
        b"x-warmturn-replica: %b\r\nx-warmturn-session-source: header\r\n"
        b"x-warmturn-predicted-cached-tokens: %d\r\n"
        % (turns[1].source.replica.encode(), turns[1].placement.predicted_tokens)
    )


def test_without_an_id_the_beginning_of_the_conversation_is_the_session():
    made = steering()
    first = drive(made, call(chat("hello")), now=0.0)
    second = drive(made, call(chat("hello", "hi", "and now?")), now=1.0)
    other = drive(made, call(chat("hello, you")), now=2.0)
    assert first.session.key == second.session.key != other.session.key
    assert (first.is_first, second.is_first) == (True, False)
    assert second.session.source == "derived"


@pytest.mark.parametrize(
    ("body", "origin"),
    [
        ({"prompt_cache_key": "k"}, "prompt_cache_key"),
        ({"conversation": {"id": "c"}}, "conversation"),
        ({"metadata": {"session_id": "c"}}, "metadata"),
        ({"session_id": "c"}, "metadata"),
        ({"vllm_xargs": {"agentic_context": {"program_id": "p"}}}, "metadata"),
    ],
)
def test_ids_in_the_body_are_read(body, origin):
    made = steering()
    turn = drive(made, call(chat("a", **body)), now=0.0)
    assert turn.session.source == origin
    assert drive(made, call(chat("b", **body)), now=1.0).session.key == turn.session.key


def test_anthropic_and_responses_forms_have_sessions_too():
    made = steering()
    anthropic = {"model": "m", "system": "be kind", "messages": [{"role": "user", "content": "a"}]}
    other = {**anthropic, "system": "be brief"}
    keys = {
        drive(made, call(body, api=Api.MESSAGES), now=0.0).session.key
        for body in (anthropic, other)
    }
    assert len(keys) == 2
    responses = {"model": "m", "instructions": "be kind", "input": "hello"}
    first = drive(
        made,
        call(responses, api=Api.RESPONSES),
        now=1.0,
        outcome=complete(usage=usage(), response_id="resp_1"),
    )
    goes_on = {"model": "m", "input": "more", "previous_response_id": "resp_1"}
    second = drive(made, call(goes_on, api=Api.RESPONSES), now=2.0)
    assert second.session.key == first.session.key
    assert (second.session.source, second.is_first) == ("previous_response_id", False)
    assert second.source == first.source


def test_a_sub_agent_begins_where_its_session_is():
    made = steering()
    parent = drive(made, call(chat("a"), x_claude_code_session_id="s"), now=0.0)
    child = drive(
        made, call(chat("b"), x_claude_code_session_id="s", x_claude_code_agent_id="x"), now=1.0
    )
    assert child.session.key != parent.session.key
    assert child.source == parent.source


def test_requests_without_anything_to_go_by_are_spread():
    made = steering()
    places = {drive(made, call({"model": "m"}), now=float(i)).source for i in range(40)}
    assert len(places) == 4


def test_an_alias_is_sent_under_the_replicas_own_name():
    made = steering(
        spec("a", models=("llama",)), spec("b", models=("qwen",)),
        models=[ServedModel("llama", aliases=("gpt-4o", "default")), ServedModel("qwen")],
    )  # fmt: skip
    turn = drive(made, call(chat("x", model="gpt-4o")), now=0.0)
    assert (turn.model, turn.source) == ("llama", source("a"))
    assert drive(made, call(chat("x", model="qwen")), now=0.0).model is None
    with pytest.raises(InvalidInput, match="twice"):
        GatewaySteering(Affinity(), models=[ServedModel("a"), ServedModel("b", aliases=("a",))])


def test_an_unknown_model_is_refused_and_those_there_are_named():
    made = steering(spec("a", models=("llama",)), models=[ServedModel("llama", aliases=("x",))])
    error = refusal(made, call(chat("x", model="gpt-5")))
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "llama, x" in str(error)
    assert made.dispatcher.num_open == 0


def test_nobody_alive_is_503_and_not_404():
    made = steering(spec("a", models=("m",)))
    made.set_alive(ReplicaId("a"), False, "connection refused", 0.0)
    assert made.replicas(0.0)[0].why_dead == "connection refused"
    assert refusal(made, call(chat("x"))).status == 503
    made.set_alive(ReplicaId("a"), True, "", 1.0)
    assert drive(made, call(chat("x")), now=1.0).source == source("a")
    assert made.replicas(0.0)[0].why_dead is None


def test_over_the_limit_comes_429_with_a_time():
    made = steering(spec("a"), limit=AdmissionLimit(max_running=2, retry_after_s=3.0))
    turns = [made.admit(call(x_session_id=str(i)), 0.0) for i in range(2)]
    for turn in turns:
        made.place(turn, 0.0)
    error = refusal(made, call())
    assert (error.status, error.retry_after_s) == (429, 3.0)
    made.ended(turns[0], complete(), 1.0)
    made.admit(call(), 1.0)
    per_replica = steering(spec("a"), limit=AdmissionLimit(max_running_per_replica=1))
    per_replica.place(per_replica.admit(call(), 0.0), 0.0)
    assert refusal(per_replica, call()).status == 429


def test_tenants_get_salts_of_their_own_and_their_sessions_are_apart():
    made = steering(salts=BY_KEY)
    one, two, again = (
        drive(made, call(x_session_id="s", authorization=f"Bearer {key}"), now=0.0)
        for key in ("sk-alice-1", "sk-bob-2", "sk-alice-1")
    )
    assert one.salt == again.salt != two.salt
    assert one.session.key == again.session.key != two.session.key
    assert "alice" not in one.salt


@pytest.mark.parametrize(
    "header",
    [{}, {"authorization": "Bearer EMPTY"}, {"authorization": "Bearer sk-no-key-required"}],
)
def test_anonymous_callers_are_refused_where_identity_is_configured(header):
    error = refusal(steering(salts=BY_KEY), call(x_session_id="s", **header))
    assert (error.status, error.code) == (401, "identity_required")


def test_anonymous_callers_may_be_given_a_salt_per_session():
    rule = SaltRule(KEY, IdentityRule("authorization", "bearer"), anonymous=Anonymous.SESSION)
    made = steering(salts=rule)
    named = [drive(made, call(x_session_id="s"), now=0.0).salt for _ in range(2)]
    derived = [drive(made, call(chat("same words")), now=0.0).salt for _ in range(2)]
    assert named[0] == named[1]
    assert len({*named, *derived}) == 3  # two strangers with equal prompts share nothing


def test_users_of_one_tenant_are_kept_apart_where_asked_for():
    rule = SaltRule(KEY, IdentityRule("x-tenant-id"), per_user=True)
    made = steering(salts=rule)
    salts = [
        drive(made, call(chat("x", user=user), x_tenant_id="acme"), now=0.0).salt
        for user in ("ann", "ben", "ann")
    ]
    assert salts[0] == salts[2] != salts[1]


def test_without_identity_there_is_no_salt():
    assert drive(steering(), call(authorization="Bearer sk-1"), now=0.0).salt is None


def test_a_failed_try_is_made_elsewhere_while_anybody_is_left():
    made = steering(spec("a"), spec("b"))
    turn = made.admit(call(x_session_id="s"), 0.0)
    made.place(turn, 0.0)
    assert made.failed(turn, "connect", 0.1)
    made.place(turn, 0.1)
    assert len(set(turn.tried)) == 2
    assert not made.failed(turn, "connect", 0.2)
    assert refusal_of_place(made, turn).status == 503
    made.ended(turn, Outcome(Ending.REFUSED, 503), 0.3)
    made.dispatcher.check()
    assert made.dispatcher.num_open == 0


def refusal_of_place(made, turn) -> Refused:
    with pytest.raises(Refused) as raised:
        made.place(turn, 0.3)
    return raised.value


class Watcher:
    def __init__(self):
        self.seen = []

    def placed(self, turn, now):
        self.seen.append(("placed", turn.source))

    def first_byte(self, turn, now):
        self.seen.append(("first_byte", turn.first_byte_s))

    def failed(self, turn, why, now):
        self.seen.append(("failed", why))

    def ended(self, turn, outcome, now):
        self.seen.append(("ended", outcome.ending))


def test_observers_see_each_step_in_order():
    watcher = Watcher()
    made = steering(spec("a"), spec("b"), observers=[watcher])
    turn = made.admit(call(), 0.0)
    first = made.place(turn, 0.0)
    made.failed(turn, "closed", 0.1)
    second = made.place(turn, 0.1)
    made.sent(turn, 0.1)
    made.first_byte(turn, 0.4)
    made.ended(turn, complete(), 0.5)
    assert watcher.seen == [
        ("placed", first), ("failed", "closed"), ("placed", second), ("first_byte", 0.4),
        ("ended", Ending.COMPLETE),
    ]  # fmt: skip


class Broken:
    """A policy with a defect."""

    name = "broken"
    wants_hits = False

    def choose(self, request, candidates, now):
        raise ZeroDivisionError


def test_where_routing_fails_affinity_goes_on_and_it_is_counted(caplog):
    made = steering(policy=Broken())
    turns = [drive(made, call(x_session_id="s"), now=float(i)) for i in range(3)]
    assert len({turn.source for turn in turns}) == 1
    assert made.num_routing_errors == 3
    assert len([r for r in caplog.records if "affinity goes on" in r.message]) == 1
    assert turns[1].placement.policy == "affinity"


def test_explaining_changes_nothing():
    made = steering(policy=Price(), shadow=RoundRobin())
    drive(made, call(x_session_id="s"), now=0.0)
    before = made.replicas(5.0)
    told = made.explain(call(chat("hello", "hi", "more"), x_session_id="s"), 5.0)
    assert made.replicas(5.0) == before
    assert told.placement.reason == "kept"
    assert len(told.placement.decision.candidates) == 4
    with pytest.raises(Refused):
        steering(salts=BY_KEY).explain(call(), 0.0)


def test_metrics_tell_capacity_and_what_others_send():
    made = steering(spec("a", capacity_tokens=1000), spec("b"))
    told = ReplicaMetrics(num_running=6, num_waiting=2, capacity_tokens=5000)
    for name in ("a", "b", "unknown"):
        made.observe_metrics(ReplicaId(name), told, 1.0)
    states = made.replicas(1.0)
    assert [s.capacity_tokens for s in states] == [1000, 5000]  # what the operator said stands
    assert [s.num_others for s in states] == [8, 8]


def test_a_session_can_be_looked_up_and_replicas_leave():
    made = steering(spec("a", models=("m",)), spec("b", models=("m",)))
    turn = drive(made, call(x_session_id="s"), now=0.0)
    found = made.session(turn.session.key, 10.0)
    assert (found.source, found.num_tokens, found.model, found.idle_s) == (
        turn.source,
        110,
        "m",
        10.0,
    )
    assert made.session("0" * 32, 10.0) is None
    made.remove_replica(turn.source.replica)
    made.remove_replica(turn.source.replica)
    assert drive(made, call(x_session_id="s"), now=11.0).source != turn.source


def test_a_prompts_length_is_estimated_from_bytes_and_learned():
    made = steering(spec("a"))
    a_call = call(chat("x" * 4000))
    before = made.admit(a_call, 0.0).prompt_tokens
    for i in range(100):
        drive(made, a_call, now=float(i), outcome=complete(usage=usage(prompt=2000)))
    assert 800 < before < 1100
    assert made.admit(a_call, 0.0).prompt_tokens == pytest.approx(2000, rel=0.03)


def test_names_that_no_header_can_carry_are_refused():
    for wrong in ("", "a b", "a\r\nx: y", "ä", "x" * 257):
        with pytest.raises(InvalidInput, match="visible ASCII"):
            spec(wrong)
    with pytest.raises(InvalidInput, match="ranks"):
        spec("a", num_ranks=0)


def test_data_parallel_ranks_are_places_of_their_own():
    made = steering(spec("a", num_ranks=4))
    places = {drive(made, call(x_session_id=str(i)), now=0.0).source for i in range(30)}
    assert places == {source("a", rank) for rank in range(4)}
