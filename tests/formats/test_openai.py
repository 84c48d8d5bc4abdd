import pytest

from warmturn.errors import InvalidRequest
from warmturn.formats import (
    TextPrompt,
    chat_request,
    completion_request,
    detokenize_request,
    ignored_fields,
    tokenize_request,
)

CHAT = {"messages": [{"role": "user", "content": "q"}]}


def refused(read, body: dict) -> InvalidRequest:
    """Return the refusal of a body."""
    with pytest.raises(InvalidRequest) as caught:
        read(body)
    return caught.value


@pytest.mark.parametrize(
    ("fields", "max_tokens"),
    [
        ({}, None),
        ({"max_tokens": 3}, 3),
        ({"max_completion_tokens": 4}, 4),
        ({"max_tokens": 3, "max_completion_tokens": 4}, 4),
    ],
)
def test_a_chat_may_say_its_length_in_two_ways(fields, max_tokens):
    assert chat_request(CHAT | fields).max_tokens == max_tokens


@pytest.mark.parametrize(
    ("fields", "num_logprobs"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_a_chat_asks_for_logprobs_by_a_switch_and_a_number(fields, num_logprobs):
    assert chat_request(CHAT | fields).num_logprobs == num_logprobs


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ],
)
def test_a_chat_with_wrong_lengths_or_logprobs_is_refused(fields, param):
    assert refused(chat_request, CHAT | fields).param == param


def test_null_counts_as_absent():
    fields = {"temperature": None, "stream": None, "tools": None, "n": None, "stop": None}
    assert chat_request(CHAT | fields) == chat_request(CHAT)


def test_a_completion_of_text_gets_sixteen_tokens_and_the_begin_token():
    request = completion_request({"prompt": "q"})
    assert request.prompt == TextPrompt(text="q", add_special_tokens=True)
    assert request.max_tokens == 16
    assert request.num_logprobs is None


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
def test_a_completion_of_token_ids_is_an_array(prompt):
    ids = completion_request({"prompt": prompt, "logprobs": 0}).prompt
    assert ids.dtype == "int32"
    assert ids.tolist() == [1, 2]


def test_a_list_of_one_text_is_that_text():
    assert completion_request({"prompt": ["q"]}).prompt.text == "q"


@pytest.mark.parametrize(
    "prompt",
    ["", [], [""], [[]], ["a", "b"], [[1], [2]], [1, "a"], [-1], [2**31], [1.5], [True], {}, 3],
)
def test_other_prompts_are_refused(prompt):
    error = refused(completion_request, {"prompt": prompt})
    assert error.param.startswith("prompt")


def test_a_completion_without_prompt_is_refused():
    assert refused(completion_request, {}).param == "prompt"


def test_tokenize_takes_messages_or_a_prompt_but_not_both():
    assert tokenize_request(CHAT).prompt.messages == CHAT["messages"]
    by_text = tokenize_request({"prompt": "", "return_token_strs": True})
    assert by_text.prompt == TextPrompt(text="")
    assert by_text.return_token_strs
    assert refused(tokenize_request, CHAT | {"prompt": "q"}).param == "prompt"
    assert refused(tokenize_request, {}).param == "prompt"


def test_detokenize_takes_token_ids():
    assert detokenize_request({"tokens": [1, 2]}).tokens == [1, 2]
    assert refused(detokenize_request, {"tokens": [-1]}).param == "tokens[0]"


def test_fields_nobody_knows_are_named_in_order():
    body = CHAT | {"zebra": 1, "apple": 2, "user": "u", "n": 1, "top_logprobs": 0, "prompt": ""}
    assert ignored_fields(body) == ["apple", "zebra"]
