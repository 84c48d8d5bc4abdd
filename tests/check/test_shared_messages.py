from tests.support.logged import call, request, tool, user
from warmturn.check.message_keys import loose_key
from warmturn.check.shared_messages import SharedMessage, SharedMessages


def test_an_equal_message_is_the_same_object():
    shared = SharedMessages()
    first = shared.share(request(user("a"), user("b"), tools=[tool("t")]))
    second = shared.share(request(user("a"), user("b"), user("c"), tools=[tool("t")]))
    assert second.messages[0] is first.messages[0]
    assert second.messages[1] is first.messages[1]
    assert second.tools[0] is first.tools[0]
    assert second.messages == (user("a"), user("b"), user("c"))


def test_what_only_python_finds_equal_is_not_shared():
    """Order of keys is printed by templates, and true is not 1."""
    shared = SharedMessages()
    pairs = [
        ({"role": "user", "content": "a"}, {"content": "a", "role": "user"}),
        (call("f", {"x": 1}), call("f", {"x": True})),
        (call("f", {"x": 1}), call("f", {"x": 1.0})),
    ]
    for left, right in pairs:
        one, other = (shared.share(request(m)).messages[0] for m in (left, right))
        assert one is not other
        assert list(map(str, one.items())) == list(map(str, left.items()))
        assert list(map(str, other.items())) == list(map(str, right.items()))


def test_what_is_no_json_is_left_alone():
    odd = {"role": "user", "content": "half \ud800"}
    assert SharedMessages().share(request(odd)).messages[0] is odd


def test_requests_without_messages_and_tools_are_left_alone():
    given = request(messages=None, prompt_text="hi")
    assert SharedMessages().share(given) == given


def test_messages_not_met_again_are_forgotten():
    shared = SharedMessages(capacity_bytes=400)
    first = shared.share(request(user("kept"))).messages[0]
    for number in range(100):
        shared.share(request(user(f"another {number}")))
        assert shared.share(request(user("kept"))).messages[0] is first
    assert len(shared) < 20


def test_the_loose_key_of_a_shared_message_is_that_of_the_plain_one():
    plain = {"role": "assistant", "content": "a  b", "tool_calls": [call("f", "{}")]}
    message = SharedMessage(plain)
    assert loose_key(message) == loose_key(plain) == message.loose
    assert loose_key(message) == loose_key(plain)
