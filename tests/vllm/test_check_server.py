"""`warmturn check` against the real server: planted differences, drift, and what reuse was lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vllm.conversations import messages
from warmturn.check import check_conversations
from warmturn.check.prompt import PromptRenderer
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
    code, found = check(
        log, "--server", server.url, "--template", template, "--tokenizer", model
    )
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


@pytest.fixture
def compare(small, model):
    """Return what is found of one chat when the server's own template is given."""

    def run(chat):
        request = next(
            iter_requests([{"model": "m", "messages": chat}])
        )
        with Client(small.url) as client:
            return check_rendering(
                client, request, model=small.model,
                renderer=PromptRenderer(ChatTemplate(RICH.read_text())),
                tokenizer=Tokenizer.from_file(model / "tokenizer.json"),
            )  # fmt: skip

    return run


def iter_requests(records):
    from warmturn.formats import LoggedRequest

    for record in records:
        yield LoggedRequest(
            source="lane", line=1, level="full", messages=tuple(record["messages"])
        )


def test_the_models_own_template_is_rendered_as_here(roomy, model):
    code, found = check("--server", roomy.url, "--model", model)
    assert {one["causes"] == [] for one in found["renderings"]} == {True}
    assert {one["path"] for one in found["renderings"]} == {"/v1/chat/completions/render"}
    assert code in {0, 1}  # the conversation's drift is the model's affair


def test_a_template_that_is_not_the_servers_is_found(small, model, tmp_path):
    code, found = against(small, model, model_template(model, tmp_path), tmp_path, messages("Hi."))
    # SmolLM2's template and ours differ where no system prompt is sent, and in nothing else
    other = against(small, model, model_template(model, tmp_path), tmp_path, messages("Hi.")[1:])
    assert (code, found[0]["causes"]) == (0, [])
    assert (other[0], other[1][0]["causes"]) == (1, ["server.template_differs"])


def model_template(model, tmp_path):
    source = json.loads((model / "tokenizer_config.json").read_text())["chat_template"]
    path = tmp_path / "own.jinja"
    path.write_text(source)
    return path


def test_arguments_that_the_server_writes_again_are_found(compare):
    found = compare(calling('{"a":1}'))
    assert found.causes == ("server.arguments_reparsed",)
    assert '{"a":1}' in found.local_at
    assert '{"a": 1}' in found.server_at


def test_arguments_as_the_server_would_write_them_are_no_difference(compare):
    assert compare(calling('{"a": 1}')).is_equal


def test_reasoning_in_a_field_that_the_server_does_not_read_is_found(compare):
    found = compare(thinking("thinking"))
    assert found.is_equal  # the template does not read it either: nothing is lost
    assert compare(thinking("reasoning_content")).is_equal
    assert compare(thinking("reasoning")).is_equal


def test_a_played_conversation_has_the_ids_and_the_reuse_of_the_server(roomy, model):
    turns = [m for m in messages("Name a fish.", "-", "And a bird?", "-", "And a tree?")
             if m["role"] != "assistant"]  # fmt: skip
    with Client(roomy.url) as client:
        played = list(replay(client, turns, model=roomy.model, salt="lane", max_reply_tokens=16))
    report = check_conversations(
        played,
        template=ChatTemplate(json.loads((model / "tokenizer_config.json").read_text())["chat_template"]),
        tokenizer=Tokenizer.from_file(model / "tokenizer.json"),
    )
    assert len(played) == 3
    print(report)
    for before, turn in zip(played, played[1:], strict=False):
        known = [*before.prompt_token_ids, *before.reply_token_ids][:-1]
        shared = next(
            (i for i, (a, b) in enumerate(zip(known, turn.prompt_token_ids, strict=False)) if a != b),
            len(known),
        )
        assert turn.cached_tokens == shared // BLOCK * BLOCK
