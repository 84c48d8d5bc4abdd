"""`warmturn check --server` against our own engine's app, and the real engine."""

import json
import sys

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.support.client import served
from tests.support.fake_engine import FakeEngine, Script
from tests.support.tiny_server import NOW
from tests.support.tiny_tokenizer import write_tiny_tokenizer
from warmturn.cli import main
from warmturn.engine.metrics import EngineMetrics
from warmturn.engine.server import create_app
from warmturn.probe.local_engine import running_engine
from warmturn.render import Renderer

SOURCE = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture
def model_dir(tmp_path):
    write_tiny_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(SOURCE)
    return tmp_path


def own_app(model_dir, reply):
    """The embedded engine's app; the engine plays a script."""
    renderer = Renderer.from_directory(model_dir)
    token_ids = (
        tuple(renderer.tokenizer.encode(reply).tolist()) if isinstance(reply, str) else reply
    )
    engine = FakeEngine(Script(token_ids=token_ids), max_model_len=4000)
    metrics = EngineMetrics("tiny", max_model_len=4000)
    engine.metrics = metrics
    return create_app(engine, renderer, model_name="tiny", metrics=metrics, now=lambda: NOW)


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["warmturn", "check", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, *capsys.readouterr()


def test_a_server_that_renders_as_here_is_clean(monkeypatch, capsys, model_dir):
    with served(own_app(model_dir, "Yes.")) as url:
        code, out, _ = run(monkeypatch, capsys, "--server", url, "--model", model_dir)
    assert "12 of 12 prompts are rendered by the server as here" in out
    assert code == 0


def test_another_template_on_the_server_is_a_finding(monkeypatch, capsys, model_dir, tmp_path):
    other = tmp_path / "other.jinja"
    other.write_text(SOURCE.replace("<|im_start|>assistant", "<|im_start|>model"))
    with served(own_app(model_dir, "Yes.")) as url:
        options = ["--server", url, "--model", model_dir, "--template", other, "--json", "-"]
        code, out, err = run(monkeypatch, capsys, *options)
    assert code == 1
    assert "server.template_differs" in err
    data = json.loads(out)
    assert {one["causes"][0] for one in data["renderings"]} == {"server.template_differs"}
    assert data["replay"]["num_requests"] == 4


def test_ids_that_drift_in_the_replay_are_a_finding(monkeypatch, capsys, model_dir):
    tokenizer = Renderer.from_directory(model_dir).tokenizer
    drifting = [tokenizer.token_id(letter) for letter in "ab" * 30]
    with served(own_app(model_dir, drifting)) as url:
        options = ["--server", url, "--model", model_dir, "--fail-under", "1"]
        code, out, _ = run(monkeypatch, capsys, *options)
    assert code == 1
    assert "token.retokenised_output" in out


def test_the_requests_of_a_log_are_compared(monkeypatch, capsys, model_dir, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}]}))
    with served(own_app(model_dir, "Yes.")) as url:
        out = run(monkeypatch, capsys, log, "--server", f"{url}/v1", "--model", model_dir)[1]
    assert "1 of 1 prompts" in out
    assert "1 request in 1 conversation" in out  # the log's question, not our own four


def test_a_log_without_messages_is_refused(monkeypatch, capsys, model_dir, tmp_path):
    (tmp_path / "log.jsonl").write_text("")
    options = [tmp_path / "log.jsonl", "--server", "http://127.0.0.1:9", "--model", model_dir]
    code, _, err = run(monkeypatch, capsys, *options)
    assert code == 2
    assert "no request with messages" in err


@pytest.mark.parametrize("options", [[], ["--template", "t.jinja"]])
def test_without_a_tokenizer_nothing_can_be_compared(monkeypatch, capsys, tmp_path, options):
    (tmp_path / "t.jinja").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    code, _, err = run(monkeypatch, capsys, "--server", "http://127.0.0.1:9", *options)
    assert code == 2
    assert "compares token ids" in err


def test_no_server_is_one_line(monkeypatch, capsys, model_dir):
    code, _, err = run(monkeypatch, capsys, "--server", "http://127.0.0.1:9", "--model", model_dir)
    assert code == 2
    assert err.startswith("warmturn: GET /v1/models got no answer")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("url", ["http://[::1", "nonsense", "ftp://127.0.0.1:1", "http://"])
def test_what_is_no_url_is_one_line(monkeypatch, capsys, model_dir, url):
    code, _, err = run(monkeypatch, capsys, "--server", url, "--model", model_dir)
    assert code == 2
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("body", ["<html>", "[]", '{"data": []}', '{"data": [3]}', "null"])
def test_a_server_that_is_something_else_is_one_line(monkeypatch, capsys, model_dir, body):
    app = Starlette(routes=[Route("/v1/models", lambda _: PlainTextResponse(body))])
    with served(app) as url:
        code, _, err = run(monkeypatch, capsys, "--server", url, "--model", model_dir)
    assert code == 2
    assert "is this the base URL" in err


def test_a_server_whose_stream_is_no_json_is_one_line(monkeypatch, capsys, model_dir):
    async def odd(_):
        return PlainTextResponse("data: <html>\n\n", media_type="text/event-stream")

    app = own_app(model_dir, "Yes.")
    app.router.routes.insert(0, Route("/v1/chat/completions", odd, methods=["POST"]))
    with served(app) as url:
        code, _, err = run(monkeypatch, capsys, "--server", url, "--model", model_dir)
    assert code == 2
    assert "an event that is not JSON" in err


@pytest.mark.slow
@pytest.mark.network
def test_the_real_engine_renders_as_here(monkeypatch, capsys, smollm_dir):
    with running_engine("--model", str(smollm_dir), "--dtype", "float32") as facts:
        options = ["--server", facts["url"], "--model", smollm_dir]
        code, out, _ = run(monkeypatch, capsys, *options)
    assert "12 of 12 prompts are rendered by the server as here" in out
    assert code in {0, 1}  # whether greedy replies drift is the model's affair
