"""Each habit of a server, planted in one, is named; what it does not change is not blamed."""

from contextlib import contextmanager

import pytest

from tests.support.client import served
from tests.support.logged import assistant, call, request, template, tool, user
from tests.support.planted_server import PlantedServer
from tests.support.tiny_tokenizer import write_tiny_tokenizer
from warmturn.check.prompt import PromptRenderer
from warmturn.errors import InvalidInput, PeerError
from warmturn.probe.check_server import chat_body, check_rendering
from warmturn.probe.client import Client
from warmturn.render import Tokenizer

SOURCE = """\
{{- greeting or '' }}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}
{%- for m in messages %}<|im_start|>{{ m.role }}:
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}
{%- for call in m.tool_calls or [] %}
{%- set arguments = call.function.arguments %}
{{- arguments if arguments is string else arguments | tojson }}{% endfor %}<|im_end|>
{%- endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}"""

CALLING = assistant("", tool_calls=[call("get", '{"a":1}')])
THINKING = assistant("Yes.", reasoning_content="Hm.")


@pytest.fixture
def tokenizer(tmp_path):
    return Tokenizer.from_file(write_tiny_tokenizer(tmp_path))


@pytest.fixture
def compare(tokenizer):
    """Return a comparison of one request with a server that was changed by `plant`."""

    @contextmanager
    def server(plant=lambda server: None, source=SOURCE, path="/tokenize"):
        planted = PlantedServer(template(source), tokenizer, path=path)
        plant(planted)
        with served(planted.app) as url, Client(url) as client:
            yield client

    def run(logged, plant=lambda server: None, *, source=SOURCE, path="/tokenize"):
        with server(plant, source, path) as client:
            return check_rendering(
                client,
                logged,
                model="m",
                renderer=PromptRenderer(template(SOURCE)),
                tokenizer=tokenizer,
            )

    return run


def test_equal_prompts_are_equal(compare):
    found = compare(request(user("Hi"), assistant("Yes."), user("More")))
    assert found.is_equal
    assert (found.causes, found.blame, found.path) == ((), "nobody", "/tokenize")


@pytest.mark.parametrize("path", ["/v1/chat/completions/render", "/apply-template"])
def test_other_endpoints_that_show_the_prompt_are_used(compare, path):
    found = compare(request(user("Hi")), path=path)
    assert found.is_equal
    assert found.path == path


def test_another_template_is_shown_at_the_place_where_the_prompts_part(compare):
    other = SOURCE.replace("<|im_start|>assistant:", "<|im_start|>model:")
    found = compare(request(user("Hi"), name="r-1"), source=other)
    assert found.causes == ("server.template_differs",)
    assert found.blame == "server"
    assert found.local_at.endswith("assistant:")
    assert found.server_at.endswith("model:")


def test_arguments_written_again_are_the_servers(compare):
    found = compare(request(user("Hi"), CALLING))
    assert found.causes == ("server.arguments_reparsed",)
    assert '{"a":1}' in found.local_at
    assert '{"a": 1}' in found.server_at


def test_arguments_passed_on_as_they_are_are_no_difference(compare):
    assert compare(
        request(user("Hi"), CALLING), lambda s: setattr(s, "parses_arguments", False)
    ).is_equal


def test_reasoning_in_a_field_the_server_does_not_read_and_the_one_it_does(compare):
    found = compare(
        request(user("Hi"), THINKING), lambda s: setattr(s, "read_reasoning", ("reasoning",))
    )
    assert found.causes == ("client.reasoning_wrong_field",)
    assert found.blame == "client"
    assert found.fix == "send the reasoning back as 'reasoning': this server then renders it"


def test_reasoning_no_field_of_which_is_read_has_no_fix(compare):
    found = compare(request(user("Hi"), THINKING), lambda s: setattr(s, "read_reasoning", ()))
    assert found.causes == ("client.reasoning_wrong_field",)
    assert found.fix is None


def test_ignored_template_arguments(compare):
    logged = request(user("Hi"), template_kwargs={"greeting": "Hello."})
    found = compare(logged, lambda s: setattr(s, "reads_kwargs", False))
    assert found.causes == ("server.template_kwargs_ignored",)


def test_tools_left_out(compare):
    logged = request(user("Hi"), tools=[tool("get")])
    found = compare(logged, lambda s: setattr(s, "prints_tools", False))
    assert found.causes == ("server.tools_not_rendered",)


def test_tools_written_with_fields_of_the_servers_own(compare):
    short = {"type": "function", "function": {"name": "get"}}
    found = compare(
        request(user("Hi"), tools=[short]), lambda s: setattr(s, "completes_tools", True)
    )
    assert found.causes == ("server.tools_completed",)
    assert '"description": null' in found.server_at


def test_two_habits_at_once_are_both_named(compare):
    def plant(server):
        server.read_reasoning = ()
        server.prints_tools = False

    found = compare(request(user("Hi"), THINKING, tools=[tool("get")]), plant)
    assert found.causes == ("client.reasoning_wrong_field", "server.tools_not_rendered")


def test_a_begin_token_put_in_front_of_a_complete_prompt(compare, tokenizer):
    added = [tokenizer.token_id("<s>")]
    found = compare(request(user("Hi")), lambda s: setattr(s, "prefix_ids", added))
    assert found.causes == ("server.special_tokens_added_twice",)
    assert "'<s>'" in found.detail


def test_the_same_json_in_another_spelling(compare):
    other = SOURCE.replace("tool | tojson", "tool | tojson(separators=(',', ':'))")
    found = compare(request(user("Hi"), tools=[tool("get", a=1)]), source=other)
    assert found.causes == ("renderer.tojson_mismatch",)


def test_a_server_that_shows_no_prompt_is_said_with_what_it_answered(compare):
    with pytest.raises(PeerError, match=r"/tokenize answered 404.*/apply-template answered 404"):
        compare(request(user("Hi")), path="/nothing")


def test_a_request_without_messages_is_refused(compare):
    with pytest.raises(InvalidInput, match="no messages"):
        compare(request(messages=None, prompt_text="x"))


def test_the_body_has_what_a_template_can_see():
    logged = request(user("Hi"), tools=[tool("get")], template_kwargs={"a": 1})
    assert chat_body(logged, model="m") == {
        "model": "m",
        "messages": [user("Hi")],
        "add_generation_prompt": True,
        "tools": [tool("get")],
        "chat_template_kwargs": {"a": 1},
    }
