"""`warmturn serve` over two vLLM replicas: events, replay, salts, a restart, the official client."""

import json
import random
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.serving import Serving
from tests.vllm import servers
from tests.vllm.conversations import messages

BLOCK = 32
REPLICAS = ("roomy", "small")
WORDS = ("river", "stone", "lamp", "green", "nine", "window", "paper", "cloud", "seven", "bread")


@pytest.fixture(scope="module")
def alike(pair):
    """Both servers under the model's own template: the small one is started again for that."""
    servers.restart(pair[1], num_blocks=129)
    for server in pair:
        server.empty()
    return dict(zip(REPLICAS, pair, strict=True))


@pytest.fixture(scope="module")
def open_gateway(alike, model):
    """Return a function that starts a gateway over both; all are stopped in the end."""
    root, opened = Path(tempfile.mkdtemp(prefix="wt")), []
    key = root / "salt.key"
    key.write_bytes(b"the same on every gateway")

    def start():
        folder = root / str(len(opened))
        folder.mkdir()
        config = folder / "gateway.toml"
        config.write_text(configuration(alike, model, key))
        opened.append(Serving(folder, "--config", str(config)))
        servers.wait_for(lambda: set(event_states(opened[-1]).values()) == {"EXACT"}, 30,
                         "the gateway does not know what the replicas hold")  # fmt: skip
        return opened[-1]

    yield start
    for one in opened:
        one.stop()
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def gateway(open_gateway):
    """The gateway of most tests."""
    return open_gateway()


def configuration(replicas, model, key):
    """Return the gateway's file: where the replicas are, their events, and the tokenizer."""
    tables = [
        f'[[replicas]]\nname = "{name}"\nurl = "{server.url}"\n'
        f'events = "{server.endpoint}"\nreplay = "{server.replay_endpoint}"\n'
        for name, server in replicas.items()
    ]
    tables.append(f'[[models]]\nname = "smol"\ntokenizer = "{model}"\n')
    tables.append('[identity]\nheader = "x-tenant"\nanonymous = "shared"\n'
                  f'salt_key_file = "{key}"\n')  # fmt: skip
    tables.append("[health]\ninterval_s = 0.5\nmetrics_interval_s = 1.0\n")
    return "\n".join(tables)


def event_states(gateway):
    """Return how much of each replica's events is known."""
    found = gateway.admin.get("/warmturn/replicas").json()["replicas"]
    return {one["name"]: source["events"] for one in found for source in one["ranks"]}


def decisions(gateway):
    """Return its turns, newest first."""
    return gateway.admin.get("/warmturn/decisions?limit=500").json()["decisions"]


def play(gateway, session, num_turns, *, tenant=None, seed=0):
    """Play a conversation with the official client; return each turn's usage."""
    rng, history, usages = random.Random(f"{session}-{seed}"), messages(), []
    for _ in range(num_turns):
        question = " ".join(rng.choices(WORDS, k=rng.randrange(8, 24)))
        history.append({"role": "user", "content": f"Say more of {question}?"})
        answer = gateway.ask(history, tenant, session)
        history.append({"role": "assistant", "content": answer.choices[0].message.content})
        usages.append(answer.usage)
    return usages


def cached(usage):
    return usage.prompt_tokens_details.cached_tokens


def test_ten_turns_prefill_within_a_block_of_what_is_new(gateway):
    usages = play(gateway, "ten", 10, tenant="ten")
    assert len(usages) == 10
    for before, usage in pairwise(usages):
        known = before.prompt_tokens + before.completion_tokens - 1
        new = usage.prompt_tokens - known
        assert new <= usage.prompt_tokens - cached(usage) <= new + BLOCK


def test_what_is_predicted_is_delivered(gateway):
    """Twelve conversations, four at a time, over both replicas: within one block, 95 of 100."""
    names = [f"predict-{number}" for number in range(12)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: play(gateway, name, 4), names))
    turns = decisions(gateway)
    assert len(turns) >= 48
    off = [
        turn for turn in turns
        if abs(turn["delivered_cached_tokens"] - turn["predicted_cached_tokens"]) > BLOCK
    ]  # fmt: skip
    assert len(off) <= 0.05 * len(turns), json.dumps(off[:3], indent=1)
    assert {turn["replica"] for turn in turns} == set(REPLICAS)
    assert sum(turn["delivered_cached_tokens"] for turn in turns) > 0


def test_two_tenants_with_the_same_prompt_share_nothing(gateway):
    chat = messages("The very same question, asked by two.")
    found = [cached(gateway.ask(chat, tenant).usage) for tenant in ("one", "two", "one", "two")]
    assert found[:2] == [0, 0]
    assert min(found[2:]) >= 4 * BLOCK


def test_a_gateway_that_comes_late_knows_by_replay_what_is_warm(gateway, open_gateway):
    first = play(gateway, "late", 2, tenant="late")
    with_replay = open_gateway()
    chat = play_again(with_replay, "late", tenant="late")
    turn = decisions(with_replay)[0]
    assert turn["predicted_cached_tokens"] == turn["delivered_cached_tokens"] == cached(chat)
    assert cached(chat) >= (first[0].prompt_tokens - 1) // BLOCK * BLOCK > 0


def play_again(gateway, session, **fields):
    """Send the first turn of a conversation that was played before."""
    return play(gateway, session, 1, **fields)[0]


def test_a_replica_that_restarts_is_empty_for_the_gateway_too(gateway, alike):
    """Its conversations go on, and nothing is believed of it that it has lost."""
    play(gateway, "restart", 2, tenant="restart")
    held = {one["name"]: one["ranks"][0]["index_blocks"]
            for one in gateway.admin.get("/warmturn/replicas").json()["replicas"]}  # fmt: skip
    home = decisions(gateway)[0]["replica"]
    assert held[home] > 0
    servers.restart(alike[home])
    servers.wait_for(
        lambda: gateway.replica_states()[home] in {"up", "half_open"}, 60, "it is not taken back"
    )
    usages = play(gateway, "restart", 3, tenant="restart")
    turns = decisions(gateway)[:3][::-1]
    assert [turn["status"] for turn in turns] == [200, 200, 200]
    assert cached(usages[0]) == 0
    assert cached(usages[1]) > 0
    assert all(
        abs(turn["predicted_cached_tokens"] - turn["delivered_cached_tokens"]) <= BLOCK
        for turn in turns
    )
