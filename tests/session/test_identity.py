import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmturn.session.identity import SESSION_HEADERS, SessionIdentity, identify

SYSTEM = {"role": "system", "content": "be brief"}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def chat(*messages, **fields):
    return {"model": "m", "messages": [*messages], **fields}


def key(headers=None, body=None, **options) -> str:
    return identify(headers or {}, body or chat(user("hi")), **options).key


@pytest.mark.parametrize("name", [*SESSION_HEADERS, "x-claude-code-session-id", "session-id"])
def test_a_session_header_names_the_session_in_any_case(name):
    one = identify({name: "s1"}, chat(user("a")))
    two = identify({name.upper(): " s1 "}, chat(user("b")))
    assert one == two
    assert (one.source, one.name, one.is_explicit) == ("header", name, True)


def test_the_order_of_sources_is_the_documented_one():
    headers = {"x-own": "1", "x-session-id": "2", "session-id": "3"}
    body = chat(user("hi"), prompt_cache_key="4", conversation={"id": "5"}, session_id="6")
    found = []
    for name in ("x-own", "x-session-id", "session-id"):
        found.append(identify(headers, body, session_header="X-Own").name)
        del headers[name]
    for name in ("prompt_cache_key", "conversation", "session_id"):
        found.append(identify(headers, body).source)
        del body[name]
    found.append(identify(headers, body).source)
    assert found == [
        *("x-own", "x-session-id", "session-id"),
        *("prompt_cache_key", "conversation", "metadata", "derived"),
    ]


@pytest.mark.parametrize("value", ["", "   ", "\t", "x" * 2000])
def test_a_blank_or_endless_id_counts_as_absent(value):
    assert identify({"x-session-id": value}, chat(user("hi"))).source == "derived"
    assert identify({}, chat(user("hi"), prompt_cache_key=value)).source == "derived"


@pytest.mark.parametrize("name", ["x-request-id", "traceparent", "x-trace-id", "x-correlation-id"])
def test_an_id_of_a_single_request_is_never_taken(name):
    keys = {key({name: str(turn)}) for turn in range(5)}
    assert keys == {key()}


@pytest.mark.parametrize(
    "fields",
    [
        {"conversation": "c"},
        {"conversation": {"id": "c"}},
        {"metadata": {"session_id": "c"}},
        {"session_params": {"session_id": "c"}},
        {"vllm_xargs": {"agentic_context": {"program_id": "c"}}},
    ],
)
def test_one_id_is_one_session_wherever_it_stands(fields):
    assert identify({}, chat(user("x"), **fields)).key == key({"x-session-id": "c"})


@pytest.mark.parametrize("value", [None, 7, [], {}, {"id": 3}, True])
def test_fields_of_a_wrong_type_are_no_ids(value):
    body = chat(user("x"), conversation=value, metadata=value, prompt_cache_key=value)
    assert identify({}, body).source == "derived"


def test_a_derived_key_is_the_same_for_every_turn_of_a_conversation():
    messages, keys = [SYSTEM, user("first")], set()
    for turn in range(4):
        keys.add(key(body=chat(*messages)))
        messages += [{"role": "assistant", "content": f"answer {turn}"}, user(f"next {turn}")]
    assert len(keys) == 1


@pytest.mark.parametrize(
    "other",
    [
        chat(SYSTEM, user("second")),
        chat({"role": "system", "content": "be long"}, user("first")),
        chat(SYSTEM, user("first"), tools=[{"name": "t"}]),
        chat(SYSTEM, user("first"), user="someone"),
        chat(SYSTEM, user("first")) | {"model": "n"},
    ],
)
def test_what_begins_otherwise_is_another_conversation(other):
    assert key(body=other) != key(body=chat(SYSTEM, user("first")))


def test_a_model_at_another_effort_is_the_same_conversation():
    bodies = [chat(user("hi")) | {"model": name} for name in ("m-4", "m-4(high)", "m-4 (low)")]
    assert len({key(body=body) for body in bodies}) == 1


def test_completions_and_responses_have_a_beginning_too():
    prompts = [{"prompt": "a" * 300 + end} for end in ("", " and more")]
    assert key(body=prompts[0]) == key(body=prompts[1])
    assert key(body={"prompt": "b"}) != key(body={"prompt": "c"})
    turns = [{"input": [user("a"), *more]} for more in ([], [{"role": "assistant"}, user("b")])]
    assert key(body=turns[0]) == key(body=turns[1])


def test_two_tenants_with_one_id_have_two_sessions():
    headers = {"x-session-id": "s"}
    assert len({key(headers, tenant=t) for t in (None, "a", "b")}) == 3
    assert len({key(salt=s) for s in (None, "a", "b")}) == 3


def test_an_id_cannot_be_forged_into_a_derived_key():
    text = json.dumps({"model": "m"})
    assert key({"x-session-id": text}) != key(body={"model": "m"})


def test_an_answer_seen_before_leads_to_its_session():
    sessions = {"resp_1": "key of the session"}
    body = {"input": "next", "previous_response_id": "resp_1"}
    found = identify({}, body, session_of_response=sessions.get)
    assert found == SessionIdentity(
        "key of the session", "previous_response_id", "previous_response_id"
    )
    body["previous_response_id"] = "unknown"
    assert identify({}, body, session_of_response=sessions.get).source == "derived"
    assert (
        identify({"x-session-id": "s"}, body, session_of_response=sessions.get).source == "header"
    )


def test_a_sub_agent_is_a_session_of_its_own_begun_where_its_parent_is():
    main = {"x-claude-code-session-id": "s"}
    agent = main | {"x-claude-code-agent-id": "a1"}
    child = main | {"x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}
    found = [identify(headers, chat(user("x"))) for headers in (main, agent, child)]
    assert len({each.key for each in found}) == 3
    assert found[0].parent_key is None
    assert found[1].parent_key == found[0].key
    assert found[2].parent_key == found[1].key


def test_a_parent_may_be_named_by_header_or_body():
    parent = key({"x-session-id": "p"})
    by_header = identify({"x-session-id": "c", "x-parent-session-id": "p"}, chat(user("x")))
    context = {"program_id": "c", "parent_program_id": "p"}
    by_body = identify({}, chat(user("x"), vllm_xargs={"agentic_context": context}))
    assert by_header.parent_key == by_body.parent_key == parent
    own = identify({"x-session-id": "p", "x-parent-session-id": "p"}, chat(user("x")))
    assert own.parent_key is None


@given(
    st.dictionaries(st.sampled_from(["x-session-id", "session-id", "thread-id"]), st.text()),
    st.dictionaries(
        st.sampled_from(["model", "messages", "input", "tools", "conversation", "metadata"]),
        st.recursive(st.none() | st.text() | st.integers(), lambda s: st.lists(s, max_size=3)),
    ),
)
def test_whatever_comes_there_is_a_key_of_32_digits(headers, body):
    found = identify(headers, body)
    assert len(found.key) == 32
    assert int(found.key, 16) >= 0
    assert found == identify(headers, body)


def test_requests_without_id_and_content_do_not_share_a_key():
    found = [identify({}, {"model": "m"}, once=once) for once in ("1", "2")]
    assert found[0].key != found[1].key
    assert {each.source for each in found} == {"once"}
    assert key(once="1") == key(once="2"), "only where there is nothing else"
