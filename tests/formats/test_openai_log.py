"""OpenAI bodies, pairs, batch files and our simple form."""

import pytest

from tests.support.logs import DATA, read_data, read_records
from warmturn.formats.record import BadLine, LoggedRequest

HI = {"role": "user", "content": "Hi"}


def test_a_pair_of_request_and_response_keeps_every_byte_of_both():
    source = str(DATA / "openai_pairs.jsonl")
    call = {"name": "get", "arguments": '{ "city" :"Ulm"}'}
    assert read_data("openai_pairs.jsonl") == [
        LoggedRequest(
            source=source,
            line=1,
            level="full",
            request_id="a1",
            conversation_id="s1",
            model="qwen",
            cache_salt="t1",
            timestamp_s=1795946400.0,
            messages=(
                {"role": "system", "content": "Be brief.\n "},
                {"role": "user", "content": "Weather?"},
            ),
            tools=(
                {"type": "function", "function": {"name": "get", "parameters": {"b": 1, "a": 2}}},
            ),
            template_kwargs={"enable_thinking": True},
            reply={
                "role": "assistant",
                "content": None,
                "reasoning": " Look.",
                "tool_calls": [{"id": "c1", "type": "function", "function": call}],
            },
            finish_reason="tool_calls",
            prompt_tokens=20,
            cached_tokens=16,
            completion_tokens=9,
        ),
        # The request as JSON text; it failed, and was sent all the same.
        LoggedRequest(
            source=source,
            line=2,
            level="full",
            request_id="a2",
            conversation_id="s1",
            model="qwen",
            timestamp_s=1795946407.5,
            messages=({"role": "user", "content": "Bye"},),
        ),
    ]


def test_key_order_of_tool_schemas_is_that_of_the_log():
    (tool,) = read_data("openai_pairs.jsonl")[0].tools
    assert list(tool["function"]["parameters"]) == ["b", "a"]


def test_the_simple_form_carries_the_text_as_it_was_generated():
    first, second = read_data("simple.jsonl")
    assert first == LoggedRequest(
        source=str(DATA / "simple.jsonl"),
        line=1,
        level="full",
        request_id="r1",
        conversation_id="s",
        model="m",
        timestamp_s=1795946400.0,
        messages=(HI,),
        tools=(),
        reply_text=" Hello \n<|im_end|>",
    )
    assert second.messages == (
        HI,
        {"role": "assistant", "content": " Hello \n"},
        {"role": "user", "content": "And?"},
    )
    assert second.tools is None


def test_batch_files_give_requests_named_by_custom_id():
    first, second = read_data("batch.jsonl")
    assert (first.request_id, first.messages, first.reply) == ("b1", (HI,), None)
    assert (second.request_id, second.finish_reason) == ("b2", "stop")
    assert second.reply == {"role": "assistant", "content": "Hey"}


def test_a_batch_output_without_its_request_is_bad():
    body = {"choices": [{"message": {"content": "Hey"}}]}
    (bad,) = read_records({"custom_id": "b", "response": {"body": body}}, format="openai")
    assert bad.reason.startswith("this record has no prompt")


@pytest.mark.parametrize("name", ["request", "req", "request_body", "body", "input", "kwargs"])
@pytest.mark.parametrize("reply_name", ["response", "response_body", "output", "completion"])
def test_pairs_are_found_under_the_usual_names(name, reply_name):
    response = {"choices": [{"message": {"role": "assistant", "content": "Yo"}}]}
    (found,) = read_records({name: {"messages": [HI]}, reply_name: response})
    assert found.messages == (HI,)
    assert found.reply == {"role": "assistant", "content": "Yo"}


@pytest.mark.parametrize(
    ("response", "reply"),
    [
        ({"role": "assistant", "content": " Yo"}, {"role": "assistant", "content": " Yo"}),
        (" Yo", {"role": "assistant", "content": " Yo"}),
        ("{not json", {"role": "assistant", "content": "{not json"}),
        (None, None),
        ({}, None),
    ],
)
def test_a_response_may_be_a_message_or_its_text(response, reply):
    (found,) = read_records({"request": {"messages": [HI]}, "response": response})
    assert found.reply == reply


def test_completions_have_a_prompt_of_text_or_ids():
    text, ids, nested = read_records(
        {"model": "m", "prompt": "Once", "response": {"choices": [{"text": " more"}]}},
        {"model": "m", "prompt": [1, 2]},
        {"model": "m", "prompt": [[3]]},
    )
    assert (text.prompt_text, text.reply_text, text.messages) == ("Once", " more", None)
    assert ids.prompt_token_ids == (1, 2)
    assert nested.prompt_token_ids == (3,)


def test_reasoning_effort_is_an_argument_of_the_template_unless_that_is_given():
    body = {"messages": [HI], "reasoning_effort": "low"}
    given = {"k": 1, "reasoning_effort": "high"}
    plain, extra, both = read_records(
        body,
        {**body, "extra_body": {"chat_template_kwargs": {"k": 1}}},
        {**body, "chat_template_kwargs": given},
    )
    assert plain.template_kwargs == {"reasoning_effort": "low"}
    assert extra.template_kwargs == {"reasoning_effort": "low", "k": 1}
    assert both.template_kwargs == given


def test_a_conversation_named_in_the_metadata_counts():
    body = {"messages": [HI], "metadata": {"session_id": "s7"}}
    assert read_records(body)[0].conversation_id == "s7"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"messages": "x"}, "messages is text, not a list of messages"),
        ({"messages": [HI, 7]}, "messages[1] is a number, not an object"),
        ({"messages": [{"content": "x"}]}, "messages[0] has no role"),
        ({"messages": [HI], "tools": [1]}, "tools is not a list of objects"),
        ({"prompt": ["a", "b"]}, "prompt is not one flat list of 32-bit token ids"),
        ({"messages": [HI], "response": [7]}, "the response is neither"),
    ],
)
def test_what_decides_the_answer_is_refused_when_it_is_wrong(broken, reason):
    good, bad, after = read_records({"messages": [HI]}, broken, {"messages": [HI]})
    assert isinstance(bad, BadLine)
    assert bad.line == 2
    assert bad.reason.startswith(reason)
    assert good.messages == after.messages == (HI,)
