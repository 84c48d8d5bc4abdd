"""LiteLLM's logging payload."""

import pytest

from tests.support.logs import DATA, read_data, read_records
from warmturn.formats.record import BadLine, LoggedRequest

PAYLOAD = {"call_type": "acompletion", "startTime": 1.0, "model": "m", "model_parameters": {}}


def test_payloads_become_requests_and_cached_or_redacted_ones_do_not():
    source = str(DATA / "litellm.jsonl")
    assert read_data("litellm.jsonl") == [
        LoggedRequest(
            source=source,
            line=1,
            level="full",
            request_id="l1",
            conversation_id="s9",
            model="qwen",
            timestamp_s=1795946400.0,
            end_s=1795946402.0,
            messages=({"role": "user", "content": "Hi"},),
            tools=({"type": "function", "function": {"name": "f"}},),
            template_kwargs={"k": 1},
            reply={"role": "assistant", "content": "Yo"},
            finish_reason="stop",
            prompt_tokens=4,
            cached_tokens=2,
            completion_tokens=1,
        ),
        BadLine(
            source,
            3,
            "the prompt is redacted; log again with turn_off_message_logging set to false",
        ),
        LoggedRequest(
            source=source,
            line=4,
            level="full",
            request_id="l4",
            model="qwen",
            timestamp_s=1795946430.0,
            messages=(
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Yo"},
                {"role": "user", "content": "?"},
            ),
        ),
    ]


def test_a_trace_id_is_no_conversation():
    (found,) = read_records(
        {**PAYLOAD, "trace_id": "t", "messages": [{"role": "user", "content": "x"}]}
    )
    assert found.conversation_id is None


def test_text_completions_have_a_prompt_of_text():
    (found,) = read_records({**PAYLOAD, "call_type": "atext_completion", "messages": "Once"})
    assert found.prompt_text == "Once"


@pytest.mark.parametrize("messages", [{}, [], None, "redacted-by-litellm"])
def test_every_form_of_redaction_is_named(messages):
    (bad,) = read_records({**PAYLOAD, "messages": messages})
    assert "redacted" in bad.reason


def test_calls_that_are_no_chat_are_bad_lines():
    (bad,) = read_records({**PAYLOAD, "call_type": "aembedding", "messages": "x"})
    assert bad.reason == "call_type is 'aembedding'; only chat completions are read"
