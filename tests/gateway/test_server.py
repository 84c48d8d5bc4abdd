"""The gateway as a whole, over real sockets, with fake replicas behind it."""

import asyncio
from dataclasses import replace

import pytest

from tests.support.gateway_process import QUICK, EngineLike, local, running
from warmturn.errors import InvalidInput
from warmturn.gateway.config import (
    AdminPart,
    AdmissionPart,
    DecisionLogPart,
    IdentityPart,
    ModelPart,
    ReplicaPart,
    RoutingPart,
)
from warmturn.gateway.server import Gateway
from warmturn.router import policy_named, read_decision_log, replay


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), 30))


async def until(condition):
    while not await condition():
        await asyncio.sleep(0.01)


def test_turns_of_a_session_stay_on_one_replica_and_answers_say_which():
    async def scenario():
        async with running(4) as gateway:
            names = set()
            for turn in range(5):
                texts = ["hello", "Hi"] * turn + ["more"]
                answer = await gateway.chat(*texts, headers={"x-session-id": "s"})
                assert answer.status_code == 200
                assert answer.headers["x-warmturn-session-source"] == "header"
                names.add(answer.headers["x-warmturn-replica"])
            assert len(names) == 1
            assert sorted(len(r.calls) for r in gateway.replicas) == [0, 0, 0, 5]
            assert await gateway.metric("kept_turns_share") == 1.0

    run(scenario)


def test_models_are_asked_for_and_aliases_are_known_by_both_names():
    async def scenario():
        models = (ModelPart(name="m", aliases=("gpt-4o",)),)
        async with running(1, models=models) as gateway:
            listed = (await gateway.client.get("/v1/models")).json()["data"]
            assert [one["id"] for one in listed] == ["gpt-4o", "m"]
            assert (await gateway.chat("hello", model="gpt-4o")).status_code == 200
            assert gateway.replicas[0].calls[0].json["model"] == "m"
            assert (await gateway.chat("hello", model="other")).status_code == 404

    run(scenario)


def test_two_tenants_with_the_same_prompt_share_nothing():
    async def scenario():
        identity = IdentityPart(header="authorization", scheme="bearer")
        async with running(1, identity=identity) as gateway:

            async def cached(key):
                answer = await gateway.chat("hello", headers={"authorization": f"Bearer {key}"})
                return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

            assert [await cached("key-a"), await cached("key-b"), await cached("key-a")] == [
                *(0, 0, 32)
            ]
            assert (await gateway.chat("hello")).status_code == 401
            salts = {seen.json["cache_salt"] for seen in gateway.replicas[0].calls}
            assert len(salts) == 2
            for path in ("/warmturn/decisions", "/warmturn/replicas", "/metrics"):
                text = (await gateway.admin.get(path)).text
                assert not any(secret in text for secret in (*salts, "hello", "key-a"))
            assert await gateway.metric("refusals_total", status="401") == 1

    run(scenario)


def test_metrics_are_what_was_sent():
    async def scenario():
        async with running(2, routing=RoutingPart(shadow="round_robin")) as gateway:
            for session in ("a", "b", "a", "a"):
                await gateway.chat("hello", headers={"x-session-id": session})
            metrics = gateway.gateway.metrics
            assert metrics.counts["turns"] == {("chat", "complete"): 4}
            assert metrics.total("placements") == metrics.total("session_sources") == 4
            assert metrics.total("later_turns") == metrics.total("kept_turns") == 2
            assert metrics.total("prompt_tokens") == 160
            assert metrics.total("delivered_cached_tokens") in (64, 96)  # a and b on one, or not
            assert metrics.total("shadow_decisions") == 4
            (shadow,) = (await gateway.get("/warmturn/shadow"))["shadows"]
            assert (shadow["policy"], shadow["num_decisions"]) == ("round_robin", 4)
            assert shadow["num_kept"] == 2 > shadow["num_kept_by_shadow"]
            text = (await gateway.admin.get("/metrics")).text
            assert 'warmturn_time_to_first_byte_seconds_count{policy="price"} 4.0' in text

    run(scenario)


def test_a_replica_that_is_gone_is_left_and_comes_back():
    async def scenario():
        async with running(2) as gateway:
            first = (await gateway.chat("x", headers={"x-session-id": "s"})).headers
            home = first["x-warmturn-replica"]
            engine = gateway.replicas[int(home[1])]
            port = engine.port
            await engine.stop()
            answer = await gateway.chat("x", headers={"x-session-id": "s"})
            assert answer.status_code == 200
            assert answer.headers["x-warmturn-replica"] != home

            async def is_open():
                return (await gateway.states())[home] in ("open", "down")

            await until(is_open)
            await engine.start(port)

            async def is_back():
                return (await gateway.states())[home] in ("half_open", "up")

            await until(is_back)

    run(scenario)


def test_without_any_replica_clients_get_503_and_readiness_says_so():
    async def scenario():
        async with running(1) as gateway:
            assert (await gateway.admin.get("/ready")).status_code == 200
            await gateway.replicas[0].stop()
            for _ in range(2):  # the first is tried there, and fails
                answer = await gateway.chat("x")
                assert answer.status_code == 503
                assert "retry-after" in answer.headers
            assert (await gateway.admin.get("/ready")).status_code == 503
            assert (await gateway.admin.get("/health")).status_code == 200

    run(scenario)


def test_replicas_are_added_drained_and_removed_while_running():
    async def scenario():
        async with running(1) as gateway:
            other = await EngineLike().start()
            part = {"url": f"http://127.0.0.1:{other.port}", "name": "late"}
            assert (await gateway.admin.post("/warmturn/replicas", json=part)).status_code == 201
            again = await gateway.admin.post("/warmturn/replicas", json=part)
            assert again.status_code == 400
            assert "there already" in again.json()["error"]["message"]

            async def is_up():
                return (await gateway.states())["late"] == "up"

            await until(is_up)
            drained = await gateway.admin.post("/warmturn/replicas/r0/drain")
            assert drained.json() == {"draining": "r0"}
            for number in range(5):
                answer = await gateway.chat("x", headers={"x-session-id": str(number)})
                assert answer.headers["x-warmturn-replica"] == "late"
            await gateway.admin.post("/warmturn/replicas/r0/undrain")
            removed = await gateway.admin.delete("/warmturn/replicas/late")
            assert removed.json() == {"removed": "late"}
            answer = await gateway.chat("x", headers={"x-session-id": "0"})
            assert answer.headers["x-warmturn-replica"] == "r0"
            assert (await gateway.admin.delete("/warmturn/replicas/late")).status_code == 404
            await other.stop()

    run(scenario)


def test_a_replica_added_by_the_api_cannot_send_secrets_elsewhere():
    async def scenario():
        async with running(1) as gateway:
            part = {"url": "http://127.0.0.1:1", "api_key_file": "/etc/passwd"}
            answer = await gateway.admin.post("/warmturn/replicas", json=part)
            assert answer.status_code == 400
            assert "configuration file only" in answer.json()["error"]["message"]

    run(scenario)


def test_an_engines_own_key_is_sent_and_never_shown(monkeypatch):
    monkeypatch.setenv("ENGINE_KEY", "sk-engine")

    async def scenario():
        engine = await EngineLike(key="sk-engine").start()
        part = ReplicaPart(url=f"http://127.0.0.1:{engine.port}", api_key_env="ENGINE_KEY")
        async with running(engines=[EngineLike()], config=local(replicas=(part,))) as gateway:
            await gateway.admin.delete("/warmturn/replicas/r0")
            answer = await gateway.chat("x", headers={"authorization": "Bearer client"})
            assert answer.status_code == 200
            assert engine.calls[0].headers["authorization"] == "Bearer sk-engine"
            assert "sk-engine" not in (await gateway.admin.get("/warmturn/replicas")).text
            assert "sk-engine" not in repr(gateway.gateway.membership.members)
        await engine.stop()

    run(scenario)


def test_explaining_shows_all_candidates_and_does_nothing():
    async def scenario():
        async with running(3) as gateway:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            asked = {"body": body, "headers": {"X-Session-Id": "s"}}
            found = (await gateway.admin.post("/warmturn/explain", json=asked)).json()
            assert {c["replica"] for c in found["candidates"]} == {"r0", "r1", "r2"}
            assert (found["session_source"], found["reason"]) == ("header", "new")
            answer = await gateway.chat("hello", headers={"x-session-id": "s"})
            assert answer.headers["x-warmturn-replica"] == found["replica"]
            assert gateway.gateway.metrics.total("placements") == 1
            unknown = {"body": body | {"model": "other"}}
            refused = await gateway.admin.post("/warmturn/explain", json=unknown)
            assert refused.status_code == 404

    run(scenario)


def test_a_sessions_place_and_turns_are_shown_by_its_id_or_key():
    async def scenario():
        async with running(2) as gateway:
            for _ in range(2):
                answer = await gateway.chat("hello", headers={"x-session-id": "mine"})
            by_id = await gateway.get("/warmturn/sessions/mine")
            assert by_id["place"]["replica"] == answer.headers["x-warmturn-replica"]
            assert [turn["reason"] for turn in by_id["turns"]] == ["kept", "new"]
            assert by_id["turns"][0]["delivered_cached_tokens"] == 32
            assert await gateway.get(f"/warmturn/sessions/{by_id['session']}") == by_id | {
                "place": by_id["place"] | {"idle_s": pytest.approx(by_id["place"]["idle_s"], abs=1)}
            }
            assert (await gateway.admin.get("/warmturn/sessions/other")).status_code == 404
            found = (await gateway.get("/warmturn/decisions?limit=1"))["decisions"]
            assert [one["number"] for one in found] == [1]

    run(scenario)


def test_the_decision_log_gives_every_decision_again(tmp_path):
    log = tmp_path / "decisions.jsonl"

    async def scenario():
        async with running(3, decision_log=DecisionLogPart(file=log)) as gateway:
            for turn in range(20):
                await gateway.chat("hello", headers={"x-session-id": f"s{turn % 4}"})

    run(scenario)
    assert log.stat().st_mode & 0o777 == 0o600
    assert b"hello" not in log.read_bytes()
    entries = list(read_decision_log(log.read_bytes().splitlines()))
    records = [entry[0] for entry in entries if isinstance(entry, tuple)]
    found = replay(records, policy_named("price"))
    assert (found.num_decisions, found.reproduces) == (20, True)
    ends = [entry for entry in entries if not isinstance(entry, tuple)]
    assert [end.prompt_tokens for end in ends] == [40] * 20
    assert not replay(records, policy_named("round_robin")).reproduces


def test_beyond_the_limit_clients_are_told_when_to_come_again():
    async def scenario():
        admission = AdmissionPart(max_running=1)
        async with running(1, admission=admission) as gateway:
            release = asyncio.Event()
            engine = gateway.replicas[0]
            answer = engine.answer
            engine.answer = lambda seen: [release, *answer(seen)]
            waiting = asyncio.create_task(gateway.chat("x"))

            async def is_there():
                return len(engine.calls) == 1

            await until(is_there)
            refused = await gateway.chat("y")
            assert (refused.status_code, int(refused.headers["retry-after"])) == (429, 1)
            release.set()
            assert (await waiting).status_code == 200

    run(scenario)


def test_a_configuration_read_again_changes_replicas_only():
    async def scenario():
        other = await EngineLike().start()
        base = local()
        holder = {}
        async with running(1, load_config=lambda: holder["new"]) as gateway:
            before = gateway.gateway._config
            late = ReplicaPart(url=f"http://127.0.0.1:{other.port}", name="late")
            kept = replace(before.replicas[0], weight=2.0)
            holder["new"] = replace(before, replicas=(kept, late))
            answer = (await gateway.admin.post("/warmturn/reload")).json()
            assert answer == {"added": ["late"], "removed": [], "changed": ["r0"]}
            holder["new"] = replace(before, routing=RoutingPart(policy="affinity"))
            refused = await gateway.admin.post("/warmturn/reload")
            assert refused.status_code == 400
            assert "routing cannot change" in refused.json()["error"]["message"]
            assert sorted(await gateway.states()) == ["late", "r0"]
        assert base
        await other.stop()

    run(scenario)


def test_leaving_lets_requests_in_flight_end():
    async def scenario():
        async with running(1) as gateway:
            engine = gateway.replicas[0]
            answer = engine.answer
            engine.answer = lambda seen: (
                [0.2, *answer(seen)] if seen.method == "POST" else answer(seen)
            )
            waiting = asyncio.create_task(gateway.chat("x"))

            async def is_there():
                return len(engine.calls) == 1

            await until(is_there)
            await gateway.gateway.__aexit__(None, None, None)
            assert (await waiting).status_code == 200

    run(scenario)


def test_a_token_is_asked_for_where_one_is_configured(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")

    async def scenario():
        admin = AdminPart(port=0, token_file=tmp_path / "token")
        async with running(1, admin=admin) as gateway:
            assert (await gateway.admin.get("/health")).status_code == 200
            for path in ("/ready", "/metrics", "/warmturn/replicas"):
                assert (await gateway.admin.get(path)).status_code == 401
                wrong = {"authorization": "Bearer other"}
                assert (await gateway.admin.get(path, headers=wrong)).status_code == 401
                right = {"authorization": "Bearer s3cret"}
                assert (await gateway.admin.get(path, headers=right)).status_code == 200

    run(scenario)


def test_without_a_token_web_pages_and_rebound_names_are_kept_out():
    async def scenario():
        async with running(1) as gateway:
            rebound = await gateway.admin.get("/metrics", headers={"host": "evil.example"})
            assert rebound.status_code == 403
            page = {"origin": "http://evil.example"}
            drained = await gateway.admin.post("/warmturn/replicas/r0/drain", headers=page)
            assert drained.status_code == 403
            assert not (await gateway.get("/warmturn/replicas"))["replicas"][0]["is_draining"]

    run(scenario)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"admin": AdminPart(host="0.0.0.0")}, "without authentication"),
        ({"replicas": (ReplicaPart(url="ftp://x"),)}, "give http://HOST:PORT"),
        ({"replicas": (ReplicaPart(url="http://x"), ReplicaPart(url="http://x"))}, "two replicas"),
        ({"identity": IdentityPart(scheme="bearer")}, "without identity.header"),
        ({"models": (ModelPart(name="a"), ModelPart(name="b", aliases=("a",)))}, "given twice"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_before_anything_listens(parts, words):
    with pytest.raises(InvalidInput, match=words):
        Gateway(local(**parts))


def test_what_an_operator_should_know_is_said():
    assert "share one cache" in Gateway(local()).warnings[0]
    identity = IdentityPart(header="x-tenant")
    assert "salts are its own" in Gateway(local(identity=identity)).warnings[0]
    assert QUICK.interval_s < 1
