"""Suspects in the template: what it prints differently although the messages only grew."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from warmturn.check.compare import shared_chars
from warmturn.check.experiment import Pair, Trial
from warmturn.check.message_keys import content_text, head_length
from warmturn.check.prompt import Message, Prompt
from warmturn.check.suspect_echo import with_reasoning

__all__ = ["TEMPLATE_SUSPECTS"]

_DECODER = json.JSONDecoder()
_LONGEST_INSERT = 48
_SURE_CHARS = 24
_LONGEST_MARKER = 80
_REASONING_READ = ("reasoning_content", "reasoning", "thinking")


def undo_date(pair: Pair) -> Iterator[Trial]:
    """Show the template the same time twice."""
    if pair.earlier.now == pair.later.now:
        return
    trial = pair.with_later(replace(pair.later, now=pair.earlier.now))
    detail = f"the template prints the time: {pair.earlier.now} became {pair.later.now}"
    yield Trial("template.date_in_template", "text", trial, detail)


def undo_tools_position(pair: Pair) -> Iterator[Trial]:
    """Render both requests without tools: what moved can only have been the tools."""
    if not (pair.earlier.tools and pair.later.tools):
        return
    bare = [replace(prompt, tools=None) for prompt in (pair.earlier, pair.later)]
    detail = "the tools stand in the newest turn, so each new turn takes them out of the last"
    yield Trial("template.tools_moved_to_last_turn", "text", pair.with_both(*bare), detail)


def undo_system_merge(pair: Pair) -> Iterator[Trial]:
    """Render both requests without their system messages."""
    if not (head_length(pair.earlier.messages) and head_length(pair.later.messages)):
        return
    bare = [_without_head(prompt) for prompt in (pair.earlier, pair.later)]
    detail = "the system text is written into a user message, and not always into the same one"
    yield Trial("template.system_merged", "text", pair.with_both(*bare), detail)


def undo_argument_parsing(pair: Pair) -> Iterator[Trial]:
    """Give the template the arguments as the strings they are; then compare them as objects."""
    if not any(message.get("tool_calls") for message in pair.later.messages):
        return
    text = pair.renderer.text(pair.later, parses_arguments=False)
    if text != pair.later_text:
        detail = "arguments are parsed and written again before the template sees them"
        yield Trial("server.arguments_reparsed", "text", pair.with_later_text(text), detail)
    found = _equal_objects(pair)
    if found is not None:
        old, new, start = found
        text = pair.later_text[:start] + old + pair.later_text[start + len(new) :]
        detail = f"{old[:60]} is written again as {new[:60]}"
        yield Trial("template.arguments_rewritten", "text", pair.with_later_text(text), detail)


def undo_reasoning(pair: Pair) -> Iterator[Trial]:
    """Take the new user message away; if the reasoning stays then, its arrival drops it."""
    index = pair.echo_index
    lost = pair.cached_text[pair.shared :]
    gone = next((r for r in _reasonings(pair) if r in lost or lost[:24] in r), None)
    if index is None or gone is None:
        return
    detail = f"reasoning of an earlier round is no longer printed: {gone[:60]!r}"
    echo = with_reasoning(pair, pair.later.messages[index])
    messages = (*pair.later.messages[:index], echo)
    text = pair.text_of(replace(pair.later, messages=messages), add_generation_prompt=False)
    if text is not None and any(m.get("role") == "user" for m in pair.later.messages[index + 1 :]):
        trial = pair.with_later_text(text)
        yield Trial("template.reasoning_stripped_on_new_user_turn", "text", trial, detail)
    cause = _dropped_always_or_after_final(pair, index, gone)
    text = pair.text_of(replace(pair.later, messages=messages[:-1]), add_generation_prompt=False)
    if text is not None:
        yield Trial(cause, "text", pair.with_later_text(text), detail)
    text = _with_reasoning_put_back(pair, gone)
    if text is not None:
        yield Trial(cause, "text", pair.with_later_text(text), detail)


def undo_generation_prompt(pair: Pair) -> Iterator[Trial]:
    """Put what the generation prompt added into the history."""
    bare = pair.text_of(pair.earlier, add_generation_prompt=False)
    if bare is None or not shared_chars(bare, pair.earlier_text) <= pair.shared < len(
        pair.earlier_text
    ):
        return
    added = pair.earlier_text[pair.shared :]
    text = pair.later_text[: pair.shared] + added + pair.later_text[pair.shared :]
    detail = f"the generation prompt ends in {added[:60]!r}, which history does not repeat"
    trial = pair.with_later_text(text)
    yield Trial("template.generation_prompt_not_in_history", "text", trial, detail)


def undo_trim(pair: Pair) -> Iterator[Trial]:
    """Put back the white space that was generated and is not printed."""
    lost = pair.cached_text[pair.shared :]
    space = lost[: len(lost) - len(lost.lstrip())]
    if space:
        text = pair.later_text[: pair.shared] + space + pair.later_text[pair.shared :]
        detail = f"the white space {space!r} of the answer is not printed"
        yield Trial("template.content_trimmed", "text", pair.with_later_text(text), detail)


def undo_insertion(pair: Pair) -> Iterator[Trial]:
    """Take out a short text that stands before what was generated."""
    rest = pair.cached_text[pair.shared : pair.shared + _SURE_CHARS]
    if pair.shared < len(pair.earlier_text) or not rest:
        return
    at = pair.later_text.find(rest, pair.shared, pair.shared + _LONGEST_INSERT + len(rest))
    if at > pair.shared:
        inserted = pair.later_text[pair.shared : at]
        trial = pair.with_later_text(pair.later_text[: pair.shared] + pair.later_text[at:])
        detail = f"history prints {inserted!r}, which was not generated"
        yield Trial("template.inserts_token_before_generated_text", "text", trial, detail)


TEMPLATE_SUSPECTS = (
    undo_date,
    undo_tools_position,
    undo_system_merge,
    undo_argument_parsing,
    undo_reasoning,
    undo_generation_prompt,
    undo_trim,
    undo_insertion,
)
"""In the order in which they are tried: what names a mechanism before what only names a place."""


def _without_head(prompt: Prompt) -> Prompt:
    return replace(prompt, messages=prompt.messages[head_length(prompt.messages) :])


def _reasonings(pair: Pair) -> Iterator[str]:
    """Yield the reasoning the cache holds: of earlier messages, and what was just generated."""
    for message in pair.earlier.messages:
        for field in _REASONING_READ:
            value = message.get(field)
            if isinstance(value, str) and value.strip():
                yield value.strip()
    if pair.generated.reasoning is not None and pair.generated.reasoning.strip():
        yield pair.generated.reasoning.strip()


def _dropped_always_or_after_final(pair: Pair, index: int, reasoning: str) -> str:
    """Tell formats that keep reasoning while a turn is open from those that never print it."""
    call = {"id": "call_0", "type": "function", "function": {"name": "probe", "arguments": {}}}
    open_turn: list[Message] = [
        {"role": "assistant", "content": "", "tool_calls": [call]}
        | dict.fromkeys(_REASONING_READ, reasoning),
        {"role": "tool", "tool_call_id": "call_0", "name": "probe", "content": "-"},
    ]
    before = [m for m in pair.later.messages[:index] if m.get("role") in {"system", "user"}][:2]
    probe = replace(pair.later, messages=(*before, *open_turn))
    text = pair.text_of(probe, add_generation_prompt=True)
    if text is not None and reasoning in text:
        return "template.analysis_dropped_after_final"
    return "template.reasoning_stripped_on_new_user_turn"


def _with_reasoning_put_back(pair: Pair, reasoning: str) -> str | None:
    """Return the later text with all that was lost up to the end of the reasoning put in again."""
    start = pair.cached_text.find(reasoning, pair.shared)
    if start < 0:
        return None
    end = start + len(reasoning)
    for at in range(end, min(end + _LONGEST_MARKER, len(pair.cached_text))):
        # Where the later text goes on: behind the marker that closes the reasoning.
        if pair.later_text.startswith(pair.cached_text[at : at + _SURE_CHARS], pair.shared):
            return (
                pair.later_text[: pair.shared]
                + pair.cached_text[pair.shared : at]
                + pair.later_text[pair.shared :]
            )
    return _answer_after_reasoning(pair)


def _answer_after_reasoning(pair: Pair) -> str | None:
    index = pair.echo_index
    content = "" if index is None else content_text(pair.later.messages[index]).strip()
    if not content:
        return None
    old_at = pair.cached_text.rfind(content)
    new_at = pair.later_text.find(content, pair.shared)
    if old_at < pair.shared or new_at < 0:
        return None
    return pair.cached_text[:old_at] + pair.later_text[new_at:]


def _equal_objects(pair: Pair) -> tuple[str, str, int] | None:
    """Find the JSON object around the break that is equal on both sides but for its spelling."""
    start = pair.shared
    while (start := pair.cached_text.rfind("{", max(0, pair.shared - 4000), start)) >= 0:
        old, new = (_object_at(text, start) for text in (pair.cached_text, pair.later_text))
        if old is not None and new is not None and old[0] == new[0]:
            return old[1], new[1], start
    return None


def _object_at(text: str, start: int) -> tuple[Any, str] | None:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return value, text[start:end]
