"""Which templates walk through content parts; each source is the shape of a real one."""

import pytest

from warmturn.render.content_format import content_format
from warmturn.render.environment import chat_environment

PARTS = "{% for part in message.content %}{{ part.text }}{% endfor %}"
LOOP = "{% for message in messages %}{body}{% endfor %}"


def detect(source):
    return content_format(chat_environment().parse(source))


def test_a_template_that_prints_content_wants_a_string():
    assert detect(LOOP.replace("{body}", "{{ message.content }}")) == "string"


@pytest.mark.parametrize(
    "source",
    [
        LOOP.replace("{body}", PARTS),
        LOOP.replace("{body}", PARTS.replace("message.content", "message['content']")),
        LOOP.replace("{body}", PARTS.replace("message.content", "message['content'] | reverse")),
        LOOP.replace("messages", "messages[1:]").replace("{body}", PARTS),
        "{% set rest = messages[1:] %}{% set chat = rest %}"
        + LOOP.replace("messages", "chat").replace("{body}", PARTS),
        "{% set messages = messages[1:] %}" + LOOP.replace("{body}", PARTS),
        LOOP.replace("{body}", "{% if message.content is not string %}" + PARTS + "{% endif %}"),
    ],
)
def test_a_template_with_a_loop_over_content_wants_parts(source):
    assert detect(source) == "openai"


@pytest.mark.parametrize(
    "source",
    [
        # a loop over something else of the message
        LOOP.replace("{body}", PARTS.replace("content", "tool_calls")),
        # a loop over the content of what is not a message
        "{% for tool in tools %}{% for p in tool.content %}{% endfor %}{% endfor %}",
        # messages kept in a namespace, or taken apart: not followed, as in vLLM
        "{% set ns.chat = messages %}" + LOOP.replace("{body}", PARTS),
        "{% for a, b in messages %}{% for p in a.content %}{% endfor %}{% endfor %}",
        "{% set a, b = messages %}" + LOOP.replace("{body}", PARTS),
        "",
    ],
)
def test_any_other_template_wants_a_string(source):
    assert detect(source) == "string"


def test_names_assigned_in_a_circle_end():
    assert detect("{% set a = messages %}{% set b = a %}{% set a = b %}") == "string"
