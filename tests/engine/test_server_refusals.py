import logging

import httpx
import pytest

from tests.support.client import call, events_of, served
from tests.support.fake_engine import Script
from tests.support.tiny_server import HELLO, TinyServer, says
from warmturn.errors import PeerError

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"
JSON = {"content-type": "application/json"}


def refused(server: TinyServer, path: str, body: dict, *, status: int = 400) -> dict:
    """Return the error of a request that must be refused, and see that the server goes on."""
    response = call(server.app, "POST", path, json=body)
    assert response.status_code == status, response.text
    assert call(server.app, "POST", CHAT, json=HELLO).status_code == 200
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"cache_salt": ""}, "cache_salt"),
        ({"messages": [{"role": "user", "content": "refuse me"}]}, "messages"),
        ({"stop_token_ids": [260]}, "stop_token_ids"),
        ({"n": 2}, "n"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_a_refusal_names_the_field(fields, param):
    error = refused(TinyServer(), CHAT, HELLO | fields)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


def test_a_prompt_outside_the_vocabulary_is_refused():
    error = refused(TinyServer(), COMPLETION, {"prompt": [1, 260]})
    assert error["param"] == "prompt"
    assert "260" in error["message"]
    assert refused(TinyServer(), "/detokenize", {"tokens": [999]})["param"] == "tokens"


def test_a_prompt_that_comes_to_no_tokens_is_refused():
    server = TinyServer()
    body = HELLO | {"add_generation_prompt": False}
    server.renderer.render_text = lambda *_, **__: ""
    response = call(server.app, "POST", CHAT, json=body)
    assert response.status_code == 400
    assert server.engine.requests == []


@pytest.mark.parametrize("stream", [False, True])
def test_what_never_fits_is_refused_before_the_status_line(stream):
    server = TinyServer(max_model_len=30)
    error = refused(server, CHAT, HELLO | {"max_tokens": 500, "stream": stream})
    assert error["code"] == "context_length_exceeded"
    assert "523 tokens" in error["message"]
    assert server.value("vllm:request_success_total", finished_reason="abort") == 0


def test_another_model_is_not_found():
    error = refused(TinyServer(), CHAT, HELLO | {"model": "gpt-x"}, status=404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", CHAT, 405)]
)
def test_unknown_paths_and_methods_answer_in_the_same_shape(method, path, status):
    response = call(TinyServer().app, method, path)
    assert response.status_code == status
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert path in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"messages": NaN}', b"[" * 100_000, b"\xff", b'{"a":1}x']
)
def test_what_is_not_a_json_object_is_refused(content):
    response = call(TinyServer().app, "POST", CHAT, content=content, headers=JSON)
    assert response.status_code == 400
    assert "body" in response.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_read(kind):
    headers = {"content-type": kind}
    response = call(TinyServer().app, "POST", CHAT, content=b"{}", headers=headers)
    assert response.status_code == 400
    assert "application/json" in response.json()["error"]["message"]


def test_a_charset_beside_the_content_type_is_fine():
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    content = b'{"prompt": "q"}'
    assert call(TinyServer().app, "POST", COMPLETION, content=content, headers=headers).is_success


def test_a_body_over_the_limit_is_refused_by_its_length_alone():
    server = TinyServer(max_body_bytes=100)
    fits = call(server.app, "POST", COMPLETION, json={"prompt": "q" * 80})
    over = call(server.app, "POST", COMPLETION, json={"prompt": "q" * 100})
    assert (fits.status_code, over.status_code) == (200, 413)
    assert over.json()["error"]["code"] == "body_too_large"


def test_a_body_declared_too_long_is_not_read_at_all():
    sent = []

    async def body():
        sent.append(True)
        yield b"{}"

    headers = JSON | {"content-length": "1000"}
    server = TinyServer(max_body_bytes=100)
    response = call(server.app, "POST", COMPLETION, content=body(), headers=headers)
    assert response.status_code == 413
    assert sent == []


def test_a_chunked_body_is_not_read_beyond_the_limit():
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1000
            yield b"x" * 1000

    server = TinyServer(max_body_bytes=5000)
    response = call(server.app, "POST", COMPLETION, content=endless(), headers=JSON)
    assert response.status_code == 413
    assert sent <= 6000


def test_a_socket_that_keeps_sending_gets_413_and_is_closed():
    server = TinyServer(max_body_bytes=5000)

    def much():
        yield from (b"x" * 1000 for _ in range(20))

    with served(server.app) as url:
        response = httpx.post(url + COMPLETION, content=much(), headers=JSON)
        assert response.status_code == 413
        assert response.headers["connection"] == "close"
        assert httpx.post(url + CHAT, json=HELLO).is_success


@pytest.mark.parametrize("stream", [False, True])
def test_an_unexpected_error_is_500_and_tells_nobody_its_message(stream, caplog):
    server = TinyServer(Script(fails_after=0))
    response = call(server.app, "POST", CHAT, json=HELLO | {"stream": stream})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    (record,) = caplog.records
    logged = logging.Formatter().format(record)
    assert "RuntimeError" in logged
    assert "fake_engine.py" in logged
    assert "secret prompt" not in logged + response.text
    assert "hello" not in logged
    server.engine.script = says("on")
    assert call(server.app, "POST", CHAT, json=HELLO).is_success


def test_an_error_in_a_stream_is_its_last_event(caplog):
    server = TinyServer(says("hi", fails_after=1))
    *chunks, error = events_of(call(server.app, "POST", CHAT, json=HELLO | {"stream": True}))
    assert len(chunks) == 2
    assert error["error"]["code"] == "internal_error"
    assert "secret prompt" not in caplog.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_the_engine_gives_up_is_unavailable(stream):
    server = TinyServer(says("a", finish_reason="abort"))
    response = call(server.app, "POST", CHAT, json=HELLO | {"stream": stream})
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "service_unavailable"
    assert server.value("vllm:request_success_total", finished_reason="abort") == 1


def test_a_peer_that_fails_is_unavailable():
    server = TinyServer(Script(fails_after=0, failure=PeerError("the engine is stopping")))
    response = call(server.app, "POST", CHAT, json=HELLO)
    assert response.status_code == 503
    assert "stopping" in response.json()["error"]["message"]


def test_a_full_server_says_when_to_come_back():
    server = TinyServer(max_concurrent_requests=0)
    response = call(server.app, "POST", CHAT, json=HELLO)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["code"] == "server_overloaded"
    assert server.value("vllm:admission_rejections_total") == 1
    assert call(server.app, "GET", "/health").is_success
