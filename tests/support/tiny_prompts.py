"""A model directory of a few kilobytes with a chat template, as the gateway tokenises for."""

import json
from datetime import UTC, datetime

from tests.support.tiny_tokenizer import write_tiny_tokenizer
from warmturn.render import Renderer

NOW = datetime(2026, 11, 29, tzinfo=UTC)

_OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
CHATML = "{% for m in messages %}" + _TURN + "{% endfor %}" + _OPEN
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
    + CHATML
)
ALTERNATING = (
    "{% for m in messages %}{% if m.role != 'system' and "
    "(m.role == 'user') != ((loop.index0 - (messages[0].role == 'system')|int) % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}" + _TURN + "{% endfor %}" + _OPEN
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    + ALTERNATING
)
FORGETS_REASONING = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content is defined and m.reasoning_content and loop.index0 > ns.last %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    + _OPEN
)
"""Like several reasoning models: thoughts leave the prompt once the user has spoken again."""
NUMBERED = (
    "{% for m in messages %}<|im_start|>{{ loop.index }}:{{ m.content }}<|im_end|>\n{% endfor %}"
    + _OPEN
)
"""Every message shows how many came before it, which no tail can know."""


def renderer(directory, template=CHATML) -> Renderer:
    """A renderer over a tokenizer of one token per byte."""
    write_tiny_tokenizer(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return Renderer.from_directory(directory)
