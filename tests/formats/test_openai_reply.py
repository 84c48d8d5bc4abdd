"""Responses and their streamed chunks."""

import pytest

from warmturn.errors import InvalidInput
from warmturn.formats.openai_reply import is_response, reply_parts, usage_parts


def chunk(*, index=0, **choice):
    return {"id": "c", "choices": [{"index": index, **choice}]}


def test_streamed_chunks_join_to_the_message_they_are_pieces_of():
    call = {"index": 0, "id": "t", "function": {"name": "get", "arguments": ""}}
    parts = reply_parts(
        [
            {**chunk(delta={"role": "assistant", "content": ""}), "prompt_token_ids": [1, 2]},
            chunk(delta={"reasoning": "Hm"}, token_ids=[3]),
            chunk(delta={"reasoning": "."}, token_ids=[4]),
            chunk(delta={"tool_calls": [call]}),
            chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": '{ "a"'}}]}),
            chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
            chunk(delta={}, token_ids=[5, 6], finish_reason="tool_calls"),
            {"id": "c", "choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 4}},
        ]
    )
    function = {"name": "get", "arguments": '{ "a":1}'}
    assert parts["reply"] == {
        "role": "assistant",
        "content": "",
        "reasoning": "Hm.",
        "tool_calls": [{"id": "t", "type": "function", "function": function}],
    }
    assert parts["prompt_token_ids"] == (1, 2)
    assert parts["reply_token_ids"] == (3, 4, 5, 6)
    assert (parts["finish_reason"], parts["completion_tokens"]) == ("tool_calls", 4)


def test_chunks_of_other_choices_are_left_out():
    parts = reply_parts([chunk(delta={"content": "a"}), chunk(index=1, delta={"content": "b"})])
    assert parts["reply"]["content"] == "a"


def test_streamed_completions_join_their_text():
    assert reply_parts([chunk(text="On"), chunk(text="ce")])["reply_text"] == "Once"


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(delta={}), 7],
        [chunk(delta={"tool_calls": [7]})],
        [chunk(delta={"tool_calls": [{"index": 4}]})],
    ],
)
def test_chunks_that_do_not_fit_together_are_refused(chunks):
    with pytest.raises(InvalidInput):
        reply_parts(chunks)


def test_an_empty_text_is_a_reply_and_not_absent():
    assert reply_parts({"choices": [{"text": ""}]})["reply_text"] == ""
    assert reply_parts({"choices": [{}]})["reply_text"] is None


def test_a_response_with_several_choices_gives_the_first():
    choices = [{"message": {"content": "a"}}, {"message": {"content": "b"}}]
    assert reply_parts({"choices": choices})["reply"]["content"] == "a"


def test_timings_count_computed_tokens_so_the_prompt_is_those_and_the_cached():
    counts = usage_parts({"timings": {"cache_n": 30, "prompt_n": 12, "predicted_n": 5}})
    assert counts == {"prompt_tokens": 42, "cached_tokens": 30, "completion_tokens": 5}


def test_usage_that_is_absent_is_none_not_zero():
    counts = usage_parts({"usage": {"prompt_tokens": 0}})
    assert counts == {"prompt_tokens": 0, "cached_tokens": None, "completion_tokens": None}


@pytest.mark.parametrize("value", [None, [], 7, {}, {"choices": 1}, [[{"choices": []}]]])
def test_other_values_are_no_response(value):
    assert not is_response(value)
