"""A conversation played on our own app, with the reply's ids as the engine generated them."""

import pytest

from tests.support.client import served
from tests.support.logged import assistant, user
from tests.support.tiny_renderer import PAIR, TinyTokenizer
from tests.support.tiny_server import TinyServer, says
from warmturn.check import check_conversations
from warmturn.check.prompt import TranscriptTemplate
from warmturn.probe.check_replay import QUESTIONS, replay, user_turns
from warmturn.probe.client import Client

TURNS = [user("one"), user("two"), user("three")]


def played(script, turns=TURNS, **options):
    with served(TinyServer(script).app) as url, Client(url) as client:
        return list(replay(client, turns, model="tiny", **options))


def test_each_turn_sends_all_before_it_with_the_replies():
    requests = played(says("yes"))
    assert [len(request.messages) for request in requests] == [1, 3, 5]
    assert requests[2].messages[3] == assistant("yes")
    assert {request.conversation_id for request in requests} == {"replay"}


def test_prompt_and_generated_ids_are_those_the_server_reports():
    first = played(says("yes"))[0]
    assert first.reply_token_ids == tuple(b"yes")
    assert (
        TinyTokenizer()
        .decode(first.prompt_token_ids, skip_special_tokens=False)
        .startswith("<start>user:one<end>")
    )


@pytest.mark.parametrize(("reply", "cause"), [("ok", "none"), ("ab", "token.retokenised_output")])
def test_a_reply_that_tokenises_to_other_ids_is_drift(reply, cause):
    """The model writes "a" and "b"; in the next prompt the tokenizer makes one token of them."""
    requests = played(says(f"{reply} is the answer"))
    report = check_conversations(requests, template=_TinyTemplate(), tokenizer=TinyTokenizer())
    assert report.cause == cause
    if cause != "none":
        assert PAIR in report.conversations[0].turns[1].token_finding.later_ids


def test_the_salt_is_sent():
    server = TinyServer(says("yes"))
    with served(server.app) as url, Client(url) as client:
        list(replay(client, TURNS[:1], model="tiny", salt="abc"))
    assert server.engine.requests[0].cache_salt == "abc"


def test_what_the_client_wrote_is_kept_of_a_log():
    messages = [user("one"), assistant("x"), {"role": "tool", "content": "y"}, user("two")]
    assert user_turns(messages) == (user("one"), user("two"))


def test_the_built_in_conversation_has_a_system_message_and_four_questions():
    assert [message["role"] for message in QUESTIONS] == ["system", *["user"] * 4]


class _TinyTemplate(TranscriptTemplate):
    """The tiny renderer's text, as a template."""

    def render(self, messages, *, now, tools=None, add_generation_prompt=True, **kwargs):
        text = "".join(f"<start>{m['role']}:{_text(m)}<end>" for m in messages)
        return text + ("<start>assistant:" if add_generation_prompt else "")


def _text(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
