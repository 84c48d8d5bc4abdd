"""`warmturn check` against the real server: planted differences, drift, and what reuse was lost."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.vllm.conversations import messages
from warmturn.check.prompt import PromptRenderer
from warmturn.formats import LoggedRequest
from warmturn.probe.check_replay import replay
from warmturn.probe.check_server import check_rendering
from warmturn.probe.client import Client
from warmturn.render import ChatTemplate, Tokenizer

RICH = Path(__file__).parent / "templates" / "reasoning_and_tools.jinja"
BLOCK = 32


def check(*arguments):
    """Run the command; return exit code and JSON."""
    command = [sys.executable, "-m", "warmturn", "check", *map(str, arguments), "--json", "-"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode in {0, 1}, result.stderr
    return result.returncode, json.loads(result.stdout)


def against(server, model, template, tmp_path, *chats, **more):
    """Write chats as a log and compare the server's rendering; a reply of it is not needed."""
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"model": "m", "messages": c, **more}) + "\n" for c in chats))
    code, found = check(log, "--server", server.url, "--template", template, "--tokenizer", model)
    return code, found["renderings"]


def calling(arguments):
    call = {"id": "c1", "type": "function", "function": {"name": "get", "arguments": arguments}}
    return [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "user", "content": "So?"},
    ]


def thinking(field):
    return [
        {"role": "user", "content": "Is it?"},
        {"role": "assistant", "content": "Yes.", field: "Let me see."},
        {"role": "user", "content": "Why?"},
    ]


@pytest.fixture(scope="session")
def tokenizer(model):
    return Tokenizer.from_file(model / "tokenizer.json")


@pytest.fixture
def compare(small, tokenizer):
    """Return a comparison of one chat where the server's own template is known."""
    rich = ChatTemplate(RICH.read_text(), special_tokens={})

    def run(chat, **more):
        request = LoggedRequest(source="lane", line=1, level="full", messages=tuple(chat), **more)
        with Client(small.url) as client:
            return check_rendering(
                client,
                request,
                model=small.model,
                renderer=PromptRenderer(rich),
                tokenizer=tokenizer,
            )

    return run


def test_the_models_own_template_is_rendered_as_here(roomy, model):
    code, found = check("--server", roomy.url, "--model", model)
    assert {one["causes"] == [] for one in found["renderings"]} == {True}
    assert {one["path"] for one in found["renderings"]} == {"/v1/chat/completions/render"}
    assert code in {0, 1}  # the conversation's drift is the model's affair


def test_a_template_that_is_not_the_servers_is_found(small, model, tmp_path):
    """SmolLM2's own template writes a system prompt where none is sent; the server's does not."""
    path = tmp_path / "own.jinja"
    path.write_text(own_template(model))
    code, found = against(small, model, path, tmp_path, messages("Hi.")[1:], messages("Hi."))
    assert code == 1
    assert [one["causes"] for one in found] == [["server.template_differs"], []]


def own_template(model):
    return json.loads((model / "tokenizer_config.json").read_text())["chat_template"]


def test_arguments_that_the_server_writes_again_are_found(compare):
    found = compare(calling('{"a":1}'))
    assert found.causes == ("server.arguments_reparsed",)
    assert '{"a":1}' in found.local_at
    assert '{"a": 1}' in found.server_at


def test_arguments_as_the_server_would_write_them_are_no_difference(compare):
    assert compare(calling('{"a": 1}')).is_equal


def test_reasoning_in_a_field_that_the_server_does_not_read_is_found(compare):
    found = compare(thinking("thinking"))
    assert found.causes == ("client.reasoning_wrong_field",)
    assert found.fix == "send the reasoning back as 'reasoning': this server then renders it"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_in_a_field_that_the_server_reads_is_no_difference(compare, field):
    assert compare(thinking(field)).is_equal


def test_the_tokenize_endpoint_drops_what_the_chat_endpoint_reads(small):
    """Why the rendering endpoint is asked first."""
    chat = thinking("reasoning_content")
    shown = small.post("/tokenize", messages=chat, add_generation_prompt=True)["tokens"]
    served = small.chat(chat, max_tokens=1)["prompt_token_ids"]
    assert len(shown) < len(served)


def test_a_tool_that_the_server_completes_is_named(compare):
    short = {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}
    found = compare([{"role": "user", "content": "Hi"}], tools=(short,))
    assert found.causes == ("server.tools_completed",)
    assert '"description": null' in found.server_at


def shared_tokens(one, other):
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def test_a_played_conversation_reuses_what_its_ids_share(roomy):
    turns = [
        m for m in messages("Name a fish.", "-", "A bird?", "-", "A tree?") if m["content"] != "-"
    ]
    with Client(roomy.url) as client:
        played = list(replay(client, turns, model=roomy.model, salt="lane", max_reply_tokens=16))
    assert len(played) == 3
    for before, turn in pairwise(played):
        known = [*before.prompt_token_ids, *before.reply_token_ids][:-1]
        assert turn.cached_tokens == shared_tokens(known, turn.prompt_token_ids) // BLOCK * BLOCK


def drifting_reply(server, tokenizer):
    """Return chat and answer of a reply whose text has other ids than were generated."""
    for seed in range(40):
        chat = messages(f"Write odd words and numbers, please. {seed}")
        answer = server.chat(chat, temperature=2.0, seed=seed, max_tokens=16, cache_salt="drift")
        choice = answer["choices"][0]
        ids = [i for i in choice["token_ids"] if i > 16]  # no control tokens
        if tokenizer.encode(choice["message"]["content"]).tolist() != ids:
            return chat, answer
    raise AssertionError("no reply of 40 drifted")


def test_drift_in_a_real_generation_is_found_in_a_log_with_ids(roomy, model, tokenizer, tmp_path):
    chat, first = drifting_reply(roomy, tokenizer)
    reply = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
    longer = [*chat, reply, {"role": "user", "content": "Again, please. " * 12}]
    second = roomy.chat(longer, max_tokens=1, cache_salt="drift")
    log = tmp_path / "log.jsonl"
    turns = ((chat, first), (longer, second))
    log.write_text("".join(
        json.dumps({"request": {"model": "m", "messages": sent}, "response": got}) + "\n"
        for sent, got in turns
    ))  # fmt: skip
    _, found = check(log, "--model", model, "--block-size", BLOCK)
    last = found["conversations"][0]["turns"][1]
    assert last["token_finding"]["cause"] == "token.retokenised_output"
    known = [*first["prompt_token_ids"], *first["choices"][0]["token_ids"]][:-1]
    kept = shared_tokens(known, second["prompt_token_ids"])
    assert kept < len(known)
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == kept // BLOCK * BLOCK
