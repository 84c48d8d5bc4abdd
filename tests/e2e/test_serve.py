"""`warmturn serve --embedded 2` in its own process: real engines, real sockets, the official client."""

import json
import subprocess
import sys
import time

import psutil
import pytest

from tests.support.serving import START_S, Serving
from tests.support.tiny_model_dir import write_tiny_model

pytestmark = pytest.mark.slow

QUESTIONS = ("Name three rivers. " * 3, "And three lakes?", "And the sea?")


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def serving(model_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    options = ["--embedded", "2", "--model", str(model_dir)]
    options += ["--engine-option", "--num-blocks 512 --threads 1"]
    options += ["--identity-header", "x-tenant", "--anonymous", "shared"]
    one = Serving(folder, *options)
    yield one
    if one.process.poll() is None:
        one.stop()


def conversation(serving, session):
    """Play three turns as a tenant of its own, to whom nothing is warm yet; yield each answer."""
    messages = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        answer = serving.ask(messages, f"tenant-of-{session}", session)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        yield answer


def test_later_turns_of_the_official_client_find_their_blocks(serving):
    answers = list(conversation(serving, "find"))
    cached = [answer.usage.prompt_tokens_details.cached_tokens for answer in answers]
    assert cached[0] == 0
    assert 0 < cached[1] < cached[2]
    turns = serving.admin.get("/warmturn/decisions?limit=3").json()["decisions"]
    assert [turn["reason"] for turn in turns] == ["kept", "kept", "new"]
    assert [turn["delivered_cached_tokens"] for turn in turns] == cached[::-1]


def test_a_stream_ends_as_the_client_asked(serving):
    messages = [{"role": "user", "content": "Stream, please."}]
    chunks = serving.ask(messages, "streamer", stream=True)
    assert all(chunk.choices for chunk in chunks)  # usage was asked for by the gateway only
    assert chunks[-1].choices[0].finish_reason is not None
    options = {"include_usage": True}
    chunks = serving.ask(messages, "streamer", stream=True, stream_options=options)
    assert chunks[-1].usage.prompt_tokens > 0


def test_a_second_tenant_with_the_same_prompt_finds_nothing(serving):
    messages = [{"role": "user", "content": "The same long question. " * 8}]

    def cached(tenant):
        return serving.ask(messages, tenant).usage.prompt_tokens_details.cached_tokens

    assert [cached("one"), cached("two")] == [0, 0]
    assert min(cached("one"), cached("two")) > 0


def test_a_request_is_explained_on_the_command_line(serving, tmp_path):
    body = {"model": serving.model, "messages": [{"role": "user", "content": "hi"}]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    command = ["route", "explain", str(tmp_path / "body.json"), "--header", "x-tenant: a"]
    shown = run(*command, "--admin", serving.facts["admin_url"], "--json", "-")
    found = json.loads(shown.stdout)
    assert {one["replica"] for one in found["candidates"]} == {"embedded-0", "embedded-1"}
    assert found["is_salted"]
    assert "prefill" in shown.stderr
    assert "embedded-1/0" in shown.stderr


def test_a_killed_engine_is_left_at_once_and_started_again(serving):
    for name in list(serving.replica_states()):
        list(conversation(serving, f"before {name}"))
    serving.engines()[0].kill()
    for number in range(6):
        messages = [{"role": "user", "content": f"question {number}"}]
        assert serving.ask(messages, "killer", f"s{number}").choices
    deadline = time.monotonic() + START_S
    while set(serving.replica_states().values()) - {"up", "half_open"}:
        assert time.monotonic() < deadline, serving.replica_states()
        time.sleep(0.2)
    cached = [
        answer.usage.prompt_tokens_details.cached_tokens
        for answer in conversation(serving, "after")
    ]
    assert cached[2] > 0


def test_the_log_of_a_gateway_that_was_told_to_stop_is_whole(model_dir, tmp_path):
    serving = Serving(
        tmp_path, "--embedded", "1", "--model", str(model_dir), "--engine-option", "--num-blocks 64"
    )
    engines = serving.engines()
    for number in range(5):
        serving.ask([{"role": "user", "content": "hello"}], session=str(number % 2))
    assert serving.stop() == 0
    assert "Traceback" not in serving.words()
    assert "share one cache" in serving.words()
    psutil.wait_procs(engines, timeout=10)
    assert not any(engine.is_running() for engine in engines)
    checked = run("replay", str(serving.log_file), "--check", "--policy", "round_robin")
    assert checked.returncode == 0, checked.stderr
    assert "5 decisions, 5 answers" in checked.stdout
    assert "every decision came out as logged" in checked.stdout


def test_an_engine_that_cannot_start_is_one_clear_line(tmp_path, model_dir):
    wrong = ["--engine-option", "--no-such-option"]
    result = run("serve", "--embedded", "2", "--model", str(model_dir), "--port", "0", *wrong)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "an embedded engine did not start" in result.stderr.splitlines()[-1]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "warmturn", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
