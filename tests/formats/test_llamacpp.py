"""llama.cpp server responses."""

from tests.support.logs import DATA, read_data, read_records
from warmturn.formats.record import LoggedRequest


def test_a_completion_and_a_chat_answer_become_requests():
    source = str(DATA / "llamacpp.jsonl")
    assert read_data("llamacpp.jsonl") == [
        LoggedRequest(
            source=source,
            line=1,
            level="full",
            model="smol",
            prompt_text="<s>Capital?",
            reply_text=" Paris.",
            reply_token_ids=(9, 10),
            finish_reason="stop",
            prompt_tokens=5,
            cached_tokens=3,  # not tokens_cached, which is 6
            completion_tokens=2,
        ),
        LoggedRequest(
            source=source,
            line=2,
            level="full",
            adapter='[{"id": 0, "scale": 0.5}]',
            messages=({"role": "user", "content": "Hi"},),
            prompt_text="<s>Hi",
            reply={"role": "assistant", "content": "Yo"},
            reply_text="Yo",
            reply_token_ids=(3,),
            finish_reason="stop",
            prompt_tokens=4,
            cached_tokens=0,
            completion_tokens=1,
        ),
    ]


def test_an_empty_token_list_means_that_ids_were_not_asked_for():
    (found,) = read_records({"prompt": "a", "content": "b", "tokens": [], "tokens_evaluated": 3})
    assert found.reply_token_ids is None
    assert (found.prompt_tokens, found.cached_tokens) == (3, None)


def test_a_completion_pair_takes_the_prompt_as_it_was_sent():
    response = {"content": "b", "tokens_evaluated": 2, "stop_type": "limit"}
    (found,) = read_records({"request": {"prompt": [1, 2]}, "response": response})
    assert (found.prompt_token_ids, found.reply_text) == ((1, 2), "b")
    assert found.finish_reason == "length"
