"""The official client over a real socket."""

import openai
import pytest

from tests.support.client import served
from tests.support.fake_engine import Script
from tests.support.tiny_renderer import END
from tests.support.tiny_server import HELLO, TinyServer

SCRIPT = Script(token_ids=(*b"hi there", END), finish_reason="stop", num_cached_tokens=4)


@pytest.fixture(scope="module")
def client():
    server = TinyServer(SCRIPT)
    with (
        served(server.app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
    ):
        yield client


def test_a_chat(client):
    answer = client.chat.completions.create(model="tiny", **HELLO, logprobs=True, top_logprobs=2)
    (choice,) = answer.choices
    assert choice.message.content == "hi there"
    assert choice.finish_reason == "stop"
    assert choice.logprobs.content[0].top_logprobs[1].logprob == -2.0
    assert answer.usage.prompt_tokens_details.cached_tokens == 4


def test_a_chat_stream_with_usage(client):
    stream = client.chat.completions.create(
        model="tiny", **HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == "hi there"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 9


def test_a_completion_and_its_stream(client):
    answer = client.completions.create(model="tiny", prompt="q", logprobs=1)
    assert answer.choices[0].text == "hi there"
    assert answer.choices[0].logprobs.text_offset[:3] == [0, 1, 2]
    stream = client.completions.create(model="tiny", prompt=[1, 2], stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "hi there"


def test_vllm_s_extensions_pass_through_extra_body(client):
    extra = {"return_token_ids": True, "cache_salt": "s", "top_k": 1}
    answer = client.chat.completions.create(model="tiny", **HELLO, extra_body=extra)
    assert answer.choices[0].token_ids[-1] == END
    assert len(answer.prompt_token_ids) == answer.usage.prompt_tokens


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_refusals_are_the_client_s_own_errors(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=[])
    assert caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="q", max_tokens=5000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", **HELLO)


def test_an_error_in_a_stream_is_raised_by_the_client():
    server = TinyServer(Script(token_ids=tuple(b"hello"), fails_after=2))
    with (
        served(server.app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
    ):
        stream = client.chat.completions.create(model="tiny", **HELLO, stream=True)
        with pytest.raises(openai.APIError, match="its log says where"):
            list(stream)
