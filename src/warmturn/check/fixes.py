"""What to change, and the proof: both requests rendered with the change.

A fix is a change of the application, so it is made to both requests alike. Where keeping what
was sent is all there is to do, the experiment that found the cause is the proof already.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from warmturn.check.causes import Step
from warmturn.check.clocks import cut_to_day
from warmturn.check.experiment import Pair
from warmturn.check.message_keys import content_text, head_length
from warmturn.check.prompt import Message, Prompt
from warmturn.check.report import Fix
from warmturn.check.spans import changed_spans
from warmturn.check.suspect_tools import tool_name
from warmturn.check.tokens import Encoder
from warmturn.check.window import window_step
from warmturn.errors import WarmturnError

__all__ = ["KNOWN_SWITCHES", "fixes_for"]

KNOWN_SWITCHES: tuple[dict[str, Any], ...] = (
    {"preserve_thinking": True},
    {"clear_thinking": False},
    {"truncate_history_thinking": False},
    {"drop_thinking": False},
    {"keep_all_reasoning": True},
    {"trim_content": False},
    {"enable_thinking": True},
    {"enable_thinking": False},
)
"""Arguments with which families print history as it was generated; tried where the template
mentions them. The last two change what the model does, so they come last."""

_KEEP = {
    "client.tool_args_key_order": "send arguments back as the very string the model wrote",
    "client.tool_args_rewritten": "send arguments back as the very string the model wrote",
    "client.tool_call_id_rewritten": "keep the ids of tool calls as they were first sent",
    "client.injected_block_moved": "leave the block in the message it was first sent with",
    "client.message_edited": "do not change messages that were sent; say it in a new message",
    "client.image_pruned": "prune images many turns at once, never in the newest turns",
    "client.reasoning_not_echoed": "send the reasoning back in the field the server reads",
    "client.reasoning_wrong_field": "send the reasoning back in the field the server reads",
    "client.content_trimmed": "store and send back the answer exactly as it was generated",
    "client.content_normalised": "store and send back the answer exactly as it was generated",
    "client.template_kwargs_changed": "keep the template's arguments for the whole conversation",
    "template.date_in_template": "give the template one date for the whole conversation",
}
_KNOWN_LINES = {
    "x-anthropic-billing-header": (
        "; Claude Code leaves this line out with CLAUDE_CODE_ATTRIBUTION_HEADER=0"
    ),
}
"""Lines that programs are known to write, and how to make them stop."""

_CHARS_PER_TOKEN = 4


def fixes_for(
    pair: Pair,
    step: Step,
    *,
    is_only: bool,
    turn: int = 1,
    tokenizer: Encoder | None = None,
    max_model_tokens: int | None = None,
) -> tuple[Fix, ...]:
    """Return the changes that cure the cause of `step` in `pair`, the best one first.

    `is_only`: whether it is the pair's only cause, so that a fix has to cure the pair.
    Changes that the rendering does not confirm are left out; there may be none.
    """
    cause = step.finding.cause
    found: list[Fix] = []
    for change, cured in _changes(pair, step):
        fix = _fix(pair, cause, change, cured, is_only=is_only)
        if cause.startswith("template."):
            fix = _with_price(fix, pair, cured, turn, tokenizer, max_model_tokens)
        if fix.is_proven:
            found.append(fix)
    if cause in {"client.history_window_slide", "client.history_summarised"}:
        found.extend(_window_fix(pair, cause))
    return tuple(found)


def _changes(pair: Pair, step: Step) -> Iterator[tuple[str, Pair]]:
    cause = step.finding.cause
    make = _MAKERS.get(cause)
    if make is not None:
        yield from _tolerant(make(pair))
    elif cause in _KEEP:
        yield _KEEP[cause], step.undone
    if cause.startswith("template."):
        yield from _tolerant(_switched(pair))


def _tolerant(changes: Iterator[tuple[str, Pair]]) -> Iterator[tuple[str, Pair]]:
    """A change the template refuses is no fix."""
    try:
        yield from changes
    except WarmturnError:
        return


def _fix(pair: Pair, cause: str, change: str, cured: Pair, *, is_only: bool) -> Fix:
    before, after = _share(pair), _share(cured)
    is_better = after > before
    return Fix(cause, change, before, after, is_better if not is_only else cured.is_append_only)


def _share(pair: Pair) -> float:
    return pair.shared / len(pair.cached_text) if pair.cached_text else 1.0


def _with_price(
    fix: Fix,
    pair: Pair,
    cured: Pair,
    turn: int,
    tokenizer: Encoder | None,
    max_model_tokens: int | None,
) -> Fix:
    """Add what the change costs: a longer context, and the turn at which it is full."""

    def tokens(text: str) -> int:
        return len(text) // _CHARS_PER_TOKEN if tokenizer is None else len(tokenizer.encode(text))

    now = tokens(cured.later_text)
    growth = now - tokens(cured.earlier_text)
    full = None
    if max_model_tokens is not None and growth > 0:
        full = turn + max(0, max_model_tokens - now) // growth + 1
    extra = now - tokens(pair.later_text)
    return replace(fix, extra_context_tokens=extra, full_context_turn=full)


def _switched(pair: Pair) -> Iterator[tuple[str, Pair]]:
    source = pair.renderer.template_for(pair.later).source
    for switch in KNOWN_SWITCHES:
        name, value = next(iter(switch.items()))
        if name in source and pair.later.kwargs.get(name) != value:
            cured = pair.with_both(
                _with_kwargs(pair.earlier, switch), _with_kwargs(pair.later, switch)
            )
            yield f"set {name}={value} in chat_template_kwargs", cured


def _with_kwargs(prompt: Prompt, switch: Mapping[str, Any]) -> Prompt:
    return replace(prompt, kwargs={**prompt.kwargs, **switch})


def _sorted_tools(pair: Pair) -> Iterator[tuple[str, Pair]]:
    by_name = [
        replace(p, tools=tuple(sorted(p.tools or (), key=tool_name)))
        for p in (pair.earlier, pair.later)
    ]
    yield "sort the tools by name", pair.with_both(*by_name)


def _all_tools(pair: Pair) -> Iterator[tuple[str, Pair]]:
    tools = {tool_name(tool): tool for p in (pair.earlier, pair.later) for tool in p.tools or ()}
    union = tuple(tools[name] for name in sorted(tools))
    both = (replace(prompt, tools=union) for prompt in (pair.earlier, pair.later))
    yield (
        "send all tools of the conversation from its first turn on, in one order",
        pair.with_both(*both),
    )


def _sorted_keys(pair: Pair) -> Iterator[tuple[str, Pair]]:
    both = [
        replace(
            p,
            tools=None
            if p.tools is None
            else tuple(json.loads(json.dumps(p.tools, sort_keys=True))),
        )
        for p in (pair.earlier, pair.later)
    ]
    yield "write tool schemas with sorted keys", pair.with_both(*both)


def _day_only(pair: Pair) -> Iterator[tuple[str, Pair]]:
    both = [_with_orders(prompt, cut_to_day) for prompt in (pair.earlier, pair.later)]
    yield "round the clock in the system text to the day", pair.with_both(*both)
    yield from _moved_to_end(pair)


def _with_orders(prompt: Prompt, edit: Callable[[str], str]) -> Prompt:
    head = head_length(prompt.messages)
    edited = [
        {**m, "content": edit(m["content"])} if isinstance(m.get("content"), str) else m
        for m in prompt.messages[:head]
    ]
    return replace(prompt, messages=(*edited, *prompt.messages[head:]))


def _moved_to_end(pair: Pair) -> Iterator[tuple[str, Pair]]:
    """Write what changes into the newest user message, and leave it there."""
    head = head_length(pair.earlier.messages)
    if head == 0 or head != head_length(pair.later.messages) or not pair.alignment.is_in_place:
        return
    old, new = (content_text(p.messages[head - 1]) for p in (pair.earlier, pair.later))
    spans = changed_spans(old, new)
    old_rest, old_lines = _without_lines(old, [(s.old_start, s.old_end) for s in spans])
    new_rest, new_lines = _without_lines(new, [(s.new_start, s.new_end) for s in spans])
    num_old = len(pair.earlier.messages)
    earlier = _appended(pair.earlier.messages, head, old_rest, old_lines)
    following = _appended(pair.later.messages, head, new_rest, new_lines)[num_old:]
    messages = (*earlier[: head - 1], {**earlier[head - 1], "content": new_rest}, *earlier[head:])
    cured = pair.with_both(
        replace(pair.earlier, messages=earlier),
        replace(pair.later, messages=(*messages, *following)),
    )
    shown = (old_lines[0] if old_lines else "").strip()[:60]
    known = next((hint for name, hint in _KNOWN_LINES.items() if name in shown.lower()), "")
    change = f"move {shown!r} out of the system text, to the end of the newest user message"
    yield change + known, cured


def _without_lines(text: str, ranges: list[tuple[int, int]]) -> tuple[str, list[str]]:
    """Take out the lines, or in long lines the sentences, that hold the changed ranges."""
    taken: list[str] = []
    for start, end in reversed(ranges):
        left, right = _line_around(text, start, end)
        if text[left:right].strip():
            taken.insert(0, text[left:right].strip())
        text = text[:left] + text[right:]
    return text, taken


def _line_around(text: str, start: int, end: int) -> tuple[int, int]:
    start, end = min(start, len(text)), min(end, len(text))
    left = text.rfind("\n", 0, start) + 1
    right = text.find("\n", end)
    right = len(text) if right < 0 else right + 1
    sentence_left = text.rfind(". ", left, start)
    sentence_right = text.find(". ", end, right)
    left = left if sentence_left < 0 else sentence_left + 2
    return left, right if sentence_right < 0 else sentence_right + 2


def _appended(
    messages: tuple[Message, ...], head: int, orders: str, lines: list[str]
) -> tuple[Message, ...]:
    """Return the messages with other orders, and `lines` at the end of the last user message."""
    result = list(messages)
    result[head - 1] = {**result[head - 1], "content": orders}
    last = max((i for i, m in enumerate(result) if m.get("role") == "user"), default=None)
    if last is not None:
        text = "\n\n".join([content_text(result[last]), *lines])
        result[last] = {**result[last], "content": text}
    return tuple(result)


def _window_fix(pair: Pair, cause: str) -> Iterator[Fix]:
    try:
        found = window_step(pair)
    except WarmturnError:
        return
    if found is None:
        return
    verb = "summarise" if cause == "client.history_summarised" else "drop"
    change = (
        f"let the history grow by {found.step_messages} messages beyond the {found.window_messages}"
        f" that are kept, then {verb} them at once"
    )
    yield Fix(cause, change, _share(pair), found.append_share, is_proven=True, window=found)


_MAKERS: dict[str, Callable[[Pair], Iterator[tuple[str, Pair]]]] = {
    "client.tools_reordered": _sorted_tools,
    "client.tools_changed": _all_tools,
    "client.tool_schema_key_order": _sorted_keys,
    "client.timestamp_in_system": _day_only,
    "client.volatile_value_in_system": _moved_to_end,
    "client.user_data_in_system": _moved_to_end,
}
