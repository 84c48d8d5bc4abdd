import logging
import re
import time

import httpx
import pytest

from tests.support.client import call, events_of, served
from tests.support.fake_engine import Script
from tests.support.tiny_renderer import BOS, END
from tests.support.tiny_server import HELLO, NOW, TinyServer, says
from warmturn import __version__
from warmturn.errors import EngineFailure

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"


def test_a_chat_is_rendered_generated_and_counted():
    server = TinyServer(says("hi", num_cached_tokens=4))
    answer = call(server.app, "POST", CHAT, json=HELLO | {"max_tokens": 2}).json()
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "tiny"
    assert answer["created"] == int(NOW.timestamp())
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }
    ]
    num_prompt = len("*user:hello**assistant:")  # a star per special token
    assert answer["usage"] == {
        "prompt_tokens": num_prompt,
        "completion_tokens": 2,
        "total_tokens": num_prompt + 2,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    (request,) = server.engine.requests
    assert request.request_id == answer["id"]
    assert server.renderer.calls[0]["now"] == NOW


def test_every_sampling_field_reaches_the_engine():
    server = TinyServer()
    fields = {
        "max_completion_tokens": 7,
        "max_tokens": 3,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "seed": -5,
        "min_tokens": 2,
        "ignore_eos": True,
        "stop_token_ids": [9, 8],
        "logprobs": True,
        "top_logprobs": 3,
        "cache_salt": "s4lt",
    }
    assert call(server.app, "POST", CHAT, json=HELLO | fields).status_code == 200
    (request,) = server.engine.requests
    sampling = request.sampling
    assert request.max_tokens == 7
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 4)
    assert (sampling.seed, sampling.min_tokens, sampling.num_logprobs) == (-5, 2, 3)
    assert request.ignore_eos
    assert request.stop_token_ids == {8, 9}
    assert request.cache_salt == "s4lt"


def test_template_fields_reach_the_renderer():
    server = TinyServer()
    tools = [{"type": "function", "function": {"name": "look"}}]
    body = HELLO | {
        "tools": tools,
        "tool_choice": "none",
        "chat_template_kwargs": {"enable_thinking": False},
        "reasoning_effort": "low",
        "add_generation_prompt": False,
        "continue_final_message": True,
        "return_token_ids": True,
    }
    answer = call(server.app, "POST", CHAT, json=body).json()
    (rendered,) = server.renderer.calls
    assert rendered["tools"] == tools
    assert rendered["kwargs"] == {"enable_thinking": False, "reasoning_effort": "low"}
    decoded = server.renderer.tokenizer.decode(
        answer["prompt_token_ids"], skip_special_tokens=False
    )
    assert decoded == "<start>user:hello"


def test_a_completion_takes_text_and_token_ids():
    server = TinyServer(says("xyz"))
    by_text = call(server.app, "POST", COMPLETION, json={"prompt": "q"}).json()
    by_ids = call(server.app, "POST", COMPLETION, json={"prompt": [7, 8]}).json()
    assert by_text["object"] == "text_completion"
    assert by_text["choices"][0]["text"] == "xyz"
    assert by_ids["usage"]["prompt_tokens"] == 2
    asked = [request.prompt_token_ids.tolist() for request in server.engine.requests]
    assert asked == [[BOS, ord("q")], [7, 8]]
    assert server.engine.requests[0].max_tokens == 16


def test_the_token_that_ends_a_reply_is_counted_but_not_shown():
    server = TinyServer(Script(token_ids=(*b"ok", END), finish_reason="stop"))
    answer = call(server.app, "POST", CHAT, json=HELLO).json()
    assert answer["choices"][0]["message"]["content"] == "ok"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 3
    assert server.engine.finished == [answer["id"]]


def test_the_token_that_ends_a_reply_is_shown_on_request():
    server = TinyServer(Script(token_ids=(*b"ok", END), finish_reason="stop"))
    body = HELLO | {"include_stop_str_in_output": True, "skip_special_tokens": False}
    answer = call(server.app, "POST", CHAT, json=body).json()
    assert answer["choices"][0]["message"]["content"] == "ok<end>"


def test_a_stop_token_of_the_request_is_the_stop_reason():
    server = TinyServer(Script(token_ids=(*b"ok", 7), finish_reason="stop"))
    answer = call(server.app, "POST", CHAT, json=HELLO | {"stop_token_ids": [7]}).json()
    assert answer["choices"][0]["stop_reason"] == 7
    assert answer["choices"][0]["message"]["content"] == "ok"


@pytest.mark.parametrize("tokens_per_step", [1, 4, 100])
def test_a_stop_string_cancels_the_engine_and_cuts_text_tokens_and_usage(tokens_per_step):
    server = TinyServer(says("one. two. three", tokens_per_step=tokens_per_step))
    body = HELLO | {"stop": [". t"], "return_token_ids": True, "logprobs": True}
    answer = call(server.app, "POST", CHAT, json=body).json()
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == "one"
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ". t")
    assert bytes(choice["token_ids"]) == b"one. t"
    assert len(choice["logprobs"]["content"]) == 6
    assert answer["usage"]["completion_tokens"] == 6
    assert server.engine.cancelled == ([answer["id"]] if tokens_per_step < 100 else [])
    assert server.value("vllm:request_success_total", finished_reason="abort") == 0


@pytest.mark.parametrize("stream", [False, True])
def test_text_held_back_is_shown_when_the_reply_ends_without_the_stop_string(stream):
    server = TinyServer(says("hello"))
    response = call(server.app, "POST", CHAT, json=HELLO | {"stop": "llo!", "stream": stream})
    if stream:
        last = events_of(response)[-2]["choices"][0]
        assert last["delta"] == {"content": "llo"}
        assert last["finish_reason"] == "length"
    else:
        assert response.json()["choices"][0]["message"]["content"] == "hello"


def test_chat_logprobs_name_tokens_bytes_and_alternatives():
    server = TinyServer(says("é"))
    body = HELLO | {"logprobs": True, "top_logprobs": 1}
    answer = call(server.app, "POST", CHAT, json=body).json()
    first, second = answer["choices"][0]["logprobs"]["content"]
    assert first == {
        "token": "\N{REPLACEMENT CHARACTER}",
        "logprob": -0.5,
        "bytes": [0xC3],
        "top_logprobs": [{"token": "\0", "logprob": -1.0, "bytes": [0]}],
    }
    assert second["bytes"] == [0xA9]


def test_completion_logprobs_come_in_columns_with_offsets_that_run_on_in_a_stream():
    server = TinyServer(says("hey"))
    body = {"prompt": "q", "logprobs": 1}
    whole = call(server.app, "POST", COMPLETION, json=body).json()["choices"][0]["logprobs"]
    assert whole == {
        "tokens": ["h", "e", "y"],
        "token_logprobs": [-0.5] * 3,
        "top_logprobs": [{"\0": -1.0, letter: -0.5} for letter in "hey"],
        "text_offset": [0, 1, 2],
    }
    *chunks, _ = events_of(call(server.app, "POST", COMPLETION, json=body | {"stream": True}))
    offsets = [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in chunks]
    assert offsets == [[0], [1], [2]]


def test_a_chat_stream_opens_with_the_role_and_ends_with_done():
    server = TinyServer(says("hi"))
    *chunks, done = events_of(call(server.app, "POST", CHAT, json=HELLO | {"stream": True}))
    assert done == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "h"}, {"content": "i"}]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None, None, "length"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert not any("usage" in chunk for chunk in chunks)


def test_a_stream_ends_with_usage_when_asked():
    server = TinyServer(says("hi", num_cached_tokens=1))
    body = {"prompt": "q", "stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, _ = events_of(call(server.app, "POST", COMPLETION, json=body))
    assert [chunk["usage"] for chunk in chunks] == [None, None]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 2,
        "total_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def test_continuous_usage_counts_up_on_every_chunk():
    server = TinyServer(says("hi"))
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = HELLO | {"stream": True, "stream_options": options}
    *chunks, _ = events_of(call(server.app, "POST", CHAT, json=body))
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 2]


@pytest.mark.parametrize(("path", "body"), [(CHAT, HELLO), (COMPLETION, {"prompt": "q"})])
def test_a_stream_gives_prompt_ids_once_and_reply_ids_as_they_come(path, body):
    server = TinyServer(says("a.b"))
    body = body | {"stream": True, "return_token_ids": True, "stop": ".b"}
    *chunks, _ = events_of(call(server.app, "POST", path, json=body))
    asked = server.engine.requests[0].prompt_token_ids.tolist()
    assert chunks[0]["prompt_token_ids"] == asked
    assert not any("prompt_token_ids" in chunk for chunk in chunks[1:])
    ids = [token for chunk in chunks for token in chunk["choices"][0]["token_ids"] or []]
    assert bytes(ids) == b"a.b"


def test_a_stream_shows_no_chunk_for_a_token_without_text():
    server = TinyServer(says("é!"))
    *chunks, _ = events_of(call(server.app, "POST", CHAT, json=HELLO | {"stream": True}))
    contents = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert contents == ["", "é", "!"]


def test_models_version_and_health_answer():
    server = TinyServer(max_model_len=77)
    (model,) = call(server.app, "GET", "/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == ("tiny", 77)
    assert call(server.app, "GET", "/version").json() == {"version": __version__}
    assert call(server.app, "GET", "/health").status_code == 200


def test_health_says_so_when_the_engine_has_ended():
    server = TinyServer()
    server.engine.failure = EngineFailure("the engine stopped: ValueError")
    assert call(server.app, "GET", "/health").status_code == 503


def test_tokenize_of_messages_equals_the_ids_that_are_served():
    server = TinyServer()
    shown = call(server.app, "POST", "/tokenize", json=HELLO).json()
    served = call(server.app, "POST", CHAT, json=HELLO | {"return_token_ids": True}).json()
    assert shown["tokens"] == served["prompt_token_ids"]
    assert shown["count"] == len(shown["tokens"])
    assert shown["max_model_len"] == 1000
    assert shown["token_strs"] is None


def test_tokenize_of_text_shows_tokens_and_detokenize_reverses_it():
    server = TinyServer()
    body = {"prompt": "ab<end>", "return_token_strs": True}
    shown = call(server.app, "POST", "/tokenize", json=body).json()
    assert shown["token_strs"] == ["<s>", "ab", "<end>"]
    back = call(server.app, "POST", "/detokenize", json={"tokens": shown["tokens"][1:]}).json()
    assert back == {"prompt": "ab<end>"}


@pytest.mark.parametrize("can_reset", [True, False])
def test_the_prefix_cache_is_reset_if_nothing_runs(can_reset):
    server = TinyServer(dev_endpoints=True)
    server.engine.can_reset = can_reset
    assert call(server.app, "POST", "/reset_prefix_cache").json() == {"success": can_reset}


def test_resetting_is_off_by_default():
    assert call(TinyServer().app, "POST", "/reset_prefix_cache").status_code == 404


def test_unknown_fields_are_ignored_and_named_once_in_the_log(caplog):
    caplog.set_level(logging.DEBUG, logger="warmturn")
    server = TinyServer()
    for _ in range(2):
        body = HELLO | {"zebra": "secret", "user": "u", "store": True}
        assert call(server.app, "POST", CHAT, json=body).status_code == 200
    assert [record.getMessage() for record in caplog.records] == ["ignored unknown fields: 'zebra'"]


def test_the_served_model_may_be_named():
    body = HELLO | {"model": "tiny"}
    assert call(TinyServer().app, "POST", CHAT, json=body).status_code == 200


def test_neither_prompts_nor_salts_are_logged(caplog):
    caplog.set_level(logging.DEBUG)
    server = TinyServer(says("my reply"))
    body = HELLO | {"cache_salt": "s4lt", "stop": "ply"}
    call(server.app, "POST", CHAT, json=body)
    call(server.app, "POST", CHAT, json=body | {"cache_salt": "s4lt/\n"})
    logged = " ".join(record.getMessage() for record in caplog.records)
    assert not {"hello", "s4lt", "reply"} & set(re.findall(r"\w+", logged))


def test_answers_on_a_kept_connection_do_not_wait_for_acknowledgements():
    server = TinyServer()
    took_s = []
    with served(server.app) as url, httpx.Client(base_url=url) as client:
        for _ in range(9):
            start_s = time.perf_counter()
            assert client.post("/tokenize", json={"prompt": "q"}).is_success
            took_s.append(time.perf_counter() - start_s)
    assert min(took_s[4:]) < 0.03  # a delayed acknowledgement costs each of them 0.04
