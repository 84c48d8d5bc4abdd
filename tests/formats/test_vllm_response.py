"""Responses with the token ids the engine used."""

from tests.support.logs import DATA, read_data, read_records
from warmturn.formats.record import LoggedRequest


def test_ids_come_from_whole_responses_and_from_streamed_ones():
    source = str(DATA / "vllm.jsonl")
    assert read_data("vllm.jsonl") == [
        LoggedRequest(
            source=source,
            line=1,
            level="full",
            request_id="chatcmpl-7",
            model="qwen",
            timestamp_s=1795946400.0,
            prompt_token_ids=(1, 2, 3),
            reply={"role": "assistant", "content": "Hi"},
            reply_token_ids=(4, 5),
            finish_reason="stop",
            prompt_tokens=3,
            cached_tokens=0,
            completion_tokens=2,
        ),
        LoggedRequest(
            source=source,
            line=2,
            level="full",
            request_id="chatcmpl-8",
            model="qwen",
            cache_salt="x",
            messages=({"role": "user", "content": "Hi"},),
            prompt_token_ids=(1, 2, 3, 4),
            reply={"role": "assistant", "content": "Yo!"},
            reply_token_ids=(6, 7, 8),
            finish_reason="length",
            prompt_tokens=4,
            completion_tokens=3,
        ),
    ]


def test_the_generate_endpoint_takes_its_prompt_as_token_ids():
    body = {"token_ids": [1, 2], "request_id": "g", "cache_salt": "t"}
    response = {"choices": [{"index": 0, "token_ids": [3], "finish_reason": "length"}]}
    (found,) = read_records({"request": body, "response": response})
    assert (found.prompt_token_ids, found.reply_token_ids) == ((1, 2), (3,))
    assert (found.request_id, found.cache_salt) == ("g", "t")


def test_ids_that_are_none_are_refused():
    response = {"prompt_token_ids": [1, -1], "choices": []}
    (bad,) = read_records(response)
    assert bad.reason == "prompt_token_ids holds -1; token ids are not negative"
