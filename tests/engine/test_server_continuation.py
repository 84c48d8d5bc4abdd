"""A reply "ab" generated as two tokens is one token when its text is tokenised again."""

import pytest

from tests.support.client import call
from tests.support.fake_engine import Script
from tests.support.recording_continuations import RecordingContinuations
from tests.support.tiny_renderer import END, PAIR
from tests.support.tiny_server import HELLO, TinyServer, says

CHAT = "/v1/chat/completions"
DRIFTING = Script(token_ids=(*b"ab", END), finish_reason="stop")


def next_turn(reply: str, question: str = "go on") -> dict:
    """Return the body of the turn after `reply`."""
    asked = [*HELLO["messages"], {"role": "assistant", "content": reply}]
    return {"messages": [*asked, {"role": "user", "content": question}]}


def two_turns(server: TinyServer, *, first: dict | None = None, second: dict | None = None):
    """Play two turns; return the first one's sequence and the second one's prompt."""
    answer = call(server.app, "POST", CHAT, json=HELLO | (first or {})).json()
    reply = answer["choices"][0]["message"]["content"]
    body = next_turn(reply) | (second or {}) | {"return_token_ids": True}
    prompt = call(server.app, "POST", CHAT, json=body).json()["prompt_token_ids"]
    return server.engine.requests[0].prompt_token_ids.tolist(), prompt


def test_without_it_a_drifting_reply_breaks_the_prefix():
    before, prompt = two_turns(TinyServer(DRIFTING))
    assert prompt[: len(before)] == before
    assert prompt[len(before)] == PAIR


def test_with_it_the_next_prompt_begins_with_what_was_generated():
    server = TinyServer(DRIFTING, continuations=RecordingContinuations())
    before, prompt = two_turns(server)
    sequence = [*before, *b"ab", END]
    assert prompt[: len(sequence)] == sequence
    assert server.value("warmturn:continuation_spliced_tokens_total") == len(sequence)
    lost_otherwise = len((*b"ab", END))  # PAIR in place of b"a" ends the cached prefix there
    assert server.value("warmturn:continuation_drifted_tokens_total") == lost_otherwise


def test_a_streamed_reply_is_remembered_before_its_last_event():
    server = TinyServer(DRIFTING, continuations=RecordingContinuations())
    call(server.app, "POST", CHAT, json=HELLO | {"stream": True})
    (text,) = server_continuations(server)
    assert text == "<start>user:hello<end><start>assistant:ab<end>"


def test_a_reply_cut_by_its_length_is_continued_too():
    server = TinyServer(says("abab"), continuations=RecordingContinuations())
    before, prompt = two_turns(server, first={"max_tokens": 3})
    assert prompt[: len(before) + 3] == [*before, *b"aba"]


@pytest.mark.parametrize(
    ("stop", "kept"),
    [
        ("!", b"abab"),
        ("b!", b"aba"),  # the shown text ends inside no token
        ("é", b"abab!"),
    ],
)
def test_of_a_reply_ended_by_a_stop_string_the_shown_tokens_are_kept(stop, kept):
    server = TinyServer(says("abab!é.rest"), continuations=RecordingContinuations())
    before, prompt = two_turns(server, first={"stop": stop})
    assert prompt[: len(before) + len(kept)] == [*before, *kept]


def test_a_token_shown_in_part_is_not_kept():
    server = TinyServer(Script(token_ids=(*b"ab", PAIR)), continuations=RecordingContinuations())
    call(server.app, "POST", CHAT, json=HELLO | {"stop": "bb"})
    call(server.app, "POST", CHAT, json=HELLO | {"stop": "bab"})
    texts = [text.rpartition(":")[2] for text in server_continuations(server)]
    assert texts == ["abab", "a"]


def test_under_the_same_salt_a_reply_is_continued():
    server = TinyServer(DRIFTING, continuations=RecordingContinuations())
    salted = {"cache_salt": "one"}
    before, prompt = two_turns(server, first=salted, second=salted)
    assert prompt[: len(before) + 3] == [*before, *b"ab", END]


def test_a_reply_with_special_tokens_left_out_is_not_kept_after_a_stop_string():
    script = Script(token_ids=(END, *b"longer than it."))
    server = TinyServer(script, continuations=RecordingContinuations())
    call(server.app, "POST", CHAT, json=HELLO | {"stop": "."})
    assert server_continuations(server) == []


def test_one_salt_never_gets_what_another_generated():
    server = TinyServer(DRIFTING, continuations=RecordingContinuations())
    before, prompt = two_turns(server, first={"cache_salt": "one"}, second={"cache_salt": "two"})
    assert prompt[len(before)] == PAIR
    assert server.value("warmturn:continuation_spliced_tokens_total") == 0


def test_a_reply_whose_client_left_or_that_failed_is_not_remembered():
    server = TinyServer(says("ab", fails_after=1), continuations=RecordingContinuations())
    call(server.app, "POST", CHAT, json=HELLO)
    assert server_continuations(server) == []


def test_completions_take_part_when_their_text_is_all_of_the_prompt():
    server = TinyServer(says("ab"), continuations=RecordingContinuations())
    call(server.app, "POST", "/v1/completions", json={"prompt": "with begin token"})
    call(server.app, "POST", "/v1/completions", json={"prompt": [1, 2]})
    assert server_continuations(server) == []
    bare = {"prompt": "q:", "add_special_tokens": False}
    call(server.app, "POST", "/v1/completions", json=bare)
    call(server.app, "POST", "/v1/completions", json=bare | {"prompt": "q:ab!"})
    assert server.engine.requests[-1].prompt_token_ids.tolist() == list(b"q:ab!")


def server_continuations(server: TinyServer) -> list[str]:
    """Return the texts remembered without a salt, in order."""
    return server.options["continuations"].texts.get(None, [])


def test_tokenize_shows_what_the_same_salt_would_be_served():
    server = TinyServer(DRIFTING, continuations=RecordingContinuations())
    _, prompt = two_turns(server, first={"cache_salt": "one"}, second={"cache_salt": "one"})
    body = next_turn("ab")
    shown = [
        call(server.app, "POST", "/tokenize", json=body | salt).json()["tokens"]
        for salt in ({"cache_salt": "one"}, {"cache_salt": "two"}, {})
    ]
    assert shown[0] == prompt
    assert shown[1] == shown[2] != prompt
    assert call(server.app, "POST", "/tokenize", json=body | {"cache_salt": ""}).status_code == 400
