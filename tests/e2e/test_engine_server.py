"""The real engine in its own process, real weights, the official client."""

import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import openai
import psutil
import pytest
import zmq

from warmturn.probe.local_engine import running_engine

pytestmark = [pytest.mark.slow, pytest.mark.network]


@pytest.fixture(scope="module")
def facts(smollm_dir, tmp_path_factory):
    sockets = tmp_path_factory.mktemp("kv")
    options = ["--model", str(smollm_dir), "--dtype", "float32", "--num-blocks", "256"]
    options += ["--exact-continuation", "--kv-events", f"ipc://{sockets}/kv.sock"]
    options += ["--kv-events-replay", f"ipc://{sockets}/replay.sock"]
    with running_engine(*options) as facts:
        yield facts | {"sockets": sockets}


@pytest.fixture
def client(facts):
    """A client of a server whose cache is empty: tests come in random order."""
    assert httpx.post(f"{facts['url']}/reset_prefix_cache").json() == {"success": True}
    with openai.OpenAI(base_url=f"{facts['url']}/v1", api_key="unused", max_retries=0) as client:
        yield client


MESSAGES = [
    {"role": "system", "content": "You are brief. " * 12},
    {"role": "user", "content": "What is the capital of France?"},
]


def ask(client, facts, messages, **fields):
    return client.chat.completions.create(
        model=facts["model"], messages=messages, temperature=0, max_tokens=12, **fields
    )


def test_a_second_turn_reuses_the_first(client, facts):
    first = ask(client, facts, MESSAGES)
    assert "Paris" in first.choices[0].message.content
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    later = [
        *MESSAGES,
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And of Italy?"},
    ]
    second = ask(client, facts, later)
    known = first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert second.usage.prompt_tokens_details.cached_tokens == known // 16 * 16


def test_streaming_gives_the_same_text_and_usage(client, facts):
    whole = ask(client, facts, MESSAGES)
    chunks = list(ask(client, facts, MESSAGES, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_salts_are_separate_caches(client, facts):
    def cached(salt):
        answer = ask(client, facts, MESSAGES, extra_body={"cache_salt": salt})
        return answer.usage.prompt_tokens_details.cached_tokens

    assert [cached("tenant-a"), cached("tenant-b")] == [0, 0]
    assert cached("tenant-a") > 0


def test_a_prompt_that_never_fits_is_refused_with_the_numbers(client, facts):
    prompt = list(range(1000, 1000 + 5000))
    with pytest.raises(openai.BadRequestError, match=r"5000 tokens .* 4096 tokens") as error:
        client.completions.create(model=facts["model"], prompt=prompt, max_tokens=4)
    assert error.value.code == "context_length_exceeded"
    assert ask(client, facts, MESSAGES).choices


def metric(facts, name):
    """Sum of all series of a metric."""
    lines = httpx.get(f"{facts['url']}/metrics").text.splitlines()
    return sum(float(x.rsplit(" ", 1)[1]) for x in lines if x.startswith((name + "{", name + " ")))


def test_metrics_agree_with_the_answers(client, facts):
    before = {n: metric(facts, f"vllm:{n}") for n in COUNTERS}
    answers = [ask(client, facts, MESSAGES), ask(client, facts, MESSAGES)]
    after = {n: metric(facts, f"vllm:{n}") for n in COUNTERS}
    delta = {n: after[n] - before[n] for n in COUNTERS}
    prompt = sum(a.usage.prompt_tokens for a in answers)
    cached = sum(a.usage.prompt_tokens_details.cached_tokens for a in answers)
    assert delta["prefix_cache_queries_total"] == delta["prompt_tokens_total"] == prompt
    assert delta["prefix_cache_hits_total"] == cached > 0
    assert delta["generation_tokens_total"] == sum(a.usage.completion_tokens for a in answers)


COUNTERS = (
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "prompt_tokens_total",
    "generation_tokens_total",
)


def test_a_client_that_leaves_frees_its_blocks_at_once(client, facts):
    stream = client.completions.create(
        model=facts["model"],
        prompt=list(range(2000, 2600)),
        max_tokens=3000,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    assert metric(facts, "vllm:num_requests_running") == 1
    assert metric(facts, "vllm:kv_cache_usage_perc") > 0
    stream.close()
    deadline = time.monotonic() + 5
    while metric(facts, "vllm:num_requests_running") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert metric(facts, "vllm:num_requests_running") == 0
    assert metric(facts, "vllm:kv_cache_usage_perc") == 0


def test_many_clients_at_once_all_get_their_own_answer(client, facts):
    """Sixteen conversations interleaved: each reply equals the one it gets alone."""

    def reply(number):
        messages = [{"role": "user", "content": f"Name {number} colours."}]
        return ask(client, facts, messages).choices[0].message.content

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(reply, range(2, 18)))
    assert together == [reply(n) for n in range(2, 18)]


def test_resetting_the_cache_makes_the_next_turn_cold(client, facts):
    ask(client, facts, MESSAGES)
    assert httpx.post(f"{facts['url']}/reset_prefix_cache").json() == {"success": True}
    assert ask(client, facts, MESSAGES).usage.prompt_tokens_details.cached_tokens == 0


def test_events_name_the_blocks_in_vllms_wire_form(client, facts):
    context = zmq.Context()
    replay = context.socket(zmq.DEALER)
    replay.setsockopt(zmq.RCVTIMEO, 5000)
    replay.connect(f"ipc://{facts['sockets']}/replay.sock")
    ask(client, facts, MESSAGES, extra_body={"cache_salt": "seen-in-events"})
    replay.send_multipart([b"", (0).to_bytes(8, "big")])
    batches = []
    while True:
        _, _, sequence, payload = replay.recv_multipart()
        if int.from_bytes(sequence, "big", signed=True) == -1:
            break
        batches.append(msgspec.msgpack.decode(payload))
    context.destroy(linger=0)
    stored = [e for _, events, _ in batches for e in events if e["type"] == "BlockStored"]
    salted = [e for e in stored if (e.get("extra_keys") or [None])[0] == ["seen-in-events"]]
    assert salted
    assert salted[0]["block_size"] == 16
    assert salted[0]["parent_block_hash"] is None
    assert len(salted[0]["token_ids"]) == 16 * len(salted[0]["block_hashes"])
    modes = {p.name: p.stat().st_mode & 0o777 for p in facts["sockets"].iterdir()}
    assert modes == {"kv.sock": 0o600, "replay.sock": 0o600}


def test_resident_memory_stays_under_weights_pool_and_700_mb(client, facts, smollm_dir):
    """float32 weights are twice the file's bfloat16 ones."""
    weights = 2 * (smollm_dir / "model.safetensors").stat().st_size
    prompt = list(range(1000, 1000 + 3900))
    client.completions.create(model=facts["model"], prompt=prompt, max_tokens=8)
    resident = psutil.Process(facts["pid"]).memory_info().rss
    assert resident < weights + facts["pool_bytes"] + 700e6


def run(*arguments, env=None):
    return subprocess.run(
        [sys.executable, "-m", "warmturn", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=env,
    )


def refused(result, *words):
    """One clear line, no traceback, exit code 2."""
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last
    return True


def test_a_port_in_use_is_one_clear_line(smollm_dir):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refused(run("engine", "--model", str(smollm_dir), "--port", port), port, "in use")


def test_a_model_that_is_not_there_is_one_clear_line(tmp_path):
    assert refused(run("engine", "--port", "0", "--model", str(tmp_path)), "config.json")
    assert refused(run("engine", "--port", "0", "--model", str(tmp_path / "no.gguf")), "no.gguf")


def test_a_truncated_model_file_is_one_clear_line(tmp_path, smollm_dir):
    for file in smollm_dir.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000_000])
    assert refused(run("engine", "--port", "0", "--model", str(tmp_path)), "model.safetensors")


def test_missing_torch_is_one_clear_line(tmp_path, smollm_dir):
    """A torch that cannot be imported stands for one that is not installed."""
    import os

    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No torch', name='torch')\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    result = run("engine", "--port", "0", "--model", str(smollm_dir), env=environment)
    assert refused(result, "torch", "warmturn[engine]")


def test_json_says_where_it_listens(facts):
    assert facts["url"].startswith("http://127.0.0.1:")
    keys = {"url", "model", "dtype", "num_blocks", "block_size", "max_model_len", "pool_bytes"}
    assert keys <= set(facts)
    assert facts["pool_bytes"] == 256 * 16 * 30 * 2 * 3 * 64 * 4
    assert json.dumps(facts["url"])
