"""Suspects in the reply sent back: the first message the client writes about the model's words."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from warmturn.check.experiment import Pair, Trial
from warmturn.check.message_keys import content_text, same_json
from warmturn.check.prompt import Message
from warmturn.check.suspect_fields import (
    REASONING_FIELDS,
    normalised,
    restore_arguments,
    restore_ids,
)

__all__ = ["undo_echo", "with_reasoning"]

_DECODER = json.JSONDecoder()


def undo_echo(pair: Pair) -> Iterator[Trial]:
    """Make the reply that was sent back, field by field, what was generated."""
    index = pair.echo_index
    if index is None:
        yield from _missing(pair)
        return
    echo = pair.later.messages[index]
    for cause, message, detail in (
        *_reasoning(pair, echo),
        *_borders(pair, echo),
        *_rewritten_content(pair, echo),
        *_calls(pair, echo),
    ):
        yield Trial(cause, "echo", _with_echo(pair, index, message), detail, index)


def with_reasoning(pair: Pair, echo: Message) -> Message:
    """Return the echo with the generated reasoning under every name a template may read."""
    if pair.generated.reasoning is None:
        return echo
    reasoning = pair.generated.reasoning.strip()
    return {**echo, "reasoning_content": reasoning, "reasoning": reasoning, "thinking": reasoning}


def _with_echo(pair: Pair, index: int, echo: Message) -> Pair:
    messages = (*pair.later.messages[:index], echo, *pair.later.messages[index + 1 :])
    return pair.with_later(replace(pair.later, messages=messages))


def _missing(pair: Pair) -> Iterator[Trial]:
    index = pair.alignment.echo_index
    content = pair.generated.content
    if content is None or not pair.generated.text or index >= len(pair.later.messages):
        return
    reply = pair.generated.message or with_reasoning(
        pair, {"role": "assistant", "content": content}
    )
    messages = (*pair.later.messages[:index], {"role": "assistant", **reply})
    later = replace(pair.later, messages=(*messages, *pair.later.messages[index:]))
    yield Trial(
        "client.message_edited", "echo", pair.with_later(later), "the reply was left out", index
    )


def _reasoning(pair: Pair, echo: Message) -> Iterator[tuple[str, Message, str]]:
    reasoning = pair.generated.reasoning
    if reasoning is None or not reasoning.strip():
        return
    kept = [f for f in REASONING_FIELDS if isinstance(echo.get(f), str) and echo[f].strip()]
    same = [field for field in kept if echo[field].strip() == reasoning.strip()]
    shown = repr(reasoning.strip()[:60])
    read = " or ".join(_fields_read(pair))
    cause = "client.reasoning_not_echoed"
    detail = f"the reasoning {shown} was not sent back as {read}"
    if same:
        cause = "client.reasoning_wrong_field"
        detail = f"the reasoning {shown} came back as {same[0]}, the template reads {read}"
    elif kept:
        detail = f"the reasoning {shown} came back as {echo[kept[0]][:60]!r}"
    full = with_reasoning(pair, echo)
    yield cause, full, detail
    yield (
        cause,
        {**full, **dict.fromkeys(("reasoning_content", "reasoning", "thinking"), reasoning)},
        detail,
    )


def _fields_read(pair: Pair) -> list[str]:
    """Return the names under which this template looks for reasoning."""
    source = pair.renderer.template_for(pair.later).source
    names = ("reasoning_content", "reasoning", "thinking")
    return [name for name in names if re.search(rf"\b{name}\b", source)] or list(names)


def _borders(pair: Pair, echo: Message) -> Iterator[tuple[str, Message, str]]:
    """Put back the white space the model wrote around the answer, behind it first."""
    generated, core = pair.generated.content, content_text(echo).strip()
    if generated is None or not core or core not in generated:
        return
    lead, _, rest = generated.rpartition(core)
    before = lead[len(lead.rstrip()) :]
    after = rest[: len(rest) - len(rest.lstrip())]
    detail = f"the answer ended in {after!r} and came back as {content_text(echo)[-24:]!r}"
    for content in (core + after, before + core + after, before + core):
        if content != content_text(echo):
            yield "client.content_trimmed", {**echo, "content": content}, detail


def _rewritten_content(pair: Pair, echo: Message) -> Iterator[tuple[str, Message, str]]:
    generated, sent = pair.generated.content, content_text(echo)
    if generated is None or generated.strip() == sent.strip():
        return
    if echo.get("tool_calls") and generated.lstrip().startswith(sent.strip()):
        return  # what follows is the call, in whatever form this model writes it
    is_normalised = normalised(generated) == normalised(sent)
    cause = "client.content_normalised" if is_normalised else "client.message_edited"
    detail = f"the answer {generated.strip()[:60]!r} came back as {sent.strip()[:60]!r}"
    yield cause, {**echo, "content": generated.strip()}, detail
    yield cause, {**echo, "content": generated}, detail


def _calls(pair: Pair, echo: Message) -> Iterator[tuple[str, Message, str]]:
    answered = pair.generated.message
    if answered is None:
        yield from _calls_in_text(pair, echo)
        return
    for cause, message in (
        ("client.tool_call_id_rewritten", restore_ids(answered, echo)),
        ("client.tool_args_key_order", restore_arguments(answered, echo, wants_equal=True)),
        ("client.tool_args_rewritten", restore_arguments(answered, echo, wants_equal=False)),
    ):
        if message is not echo:
            yield cause, message, f"{_calls_json(answered)} came back as {_calls_json(echo)}"


def _calls_in_text(pair: Pair, echo: Message) -> Iterator[tuple[str, Message, str]]:
    """Find the arguments in the raw text: equal but for the order of keys, the client did it."""
    calls = echo.get("tool_calls")
    objects = list(_objects_in(pair.generated.text))
    if not isinstance(calls, (list, tuple)) or not calls or not objects:
        return
    restored = [_as_generated(call, objects) for call in calls]
    if json.dumps(restored) != json.dumps(calls):
        detail = f"{objects[0]} came back as {_calls_json(echo)}"
        yield "client.tool_args_key_order", {**echo, "tool_calls": restored}, detail


def _as_generated(call: Any, objects: list[str]) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    sent = _parsed(function.get("arguments"))
    for text in objects:
        value = json.loads(text)
        if same_json(value, sent) and json.dumps(value) != json.dumps(sent):
            return {**call, "function": {**function, "arguments": text}}
    return call


def _objects_in(text: str) -> Iterator[str]:
    """Yield every JSON object in `text`, inner ones included: the call around the arguments too."""
    for start in re.finditer(r"\{", text):
        try:
            _, end = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        yield text[start.start() : end]


def _parsed(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments


def _calls_json(message: Message) -> str:
    text = json.dumps(message.get("tool_calls") or [], ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:157]}..."
