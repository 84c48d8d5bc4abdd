"""Suspects at the top of the prompt: the list of tools, and the template's own arguments."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from warmturn.check.experiment import Pair, Trial
from warmturn.check.message_keys import same_json, same_text

__all__ = ["same_tool_set", "tool_name", "undo_kwargs", "undo_tools"]

Tool = dict[str, Any]


def undo_tools(pair: Pair) -> Iterator[Trial]:
    """Give the later request the earlier one's tools: their order, their keys' order, or them all."""
    old, new = pair.earlier.tools or (), pair.later.tools or ()
    if len(old) == len(new) and all(map(same_text, old, new)):
        return
    if same_json(old, new):
        trial = pair.with_later(replace(pair.later, tools=pair.earlier.tools))
        detail = f"keys inside {_names(_rewritten(old, new))} come in another order"
        yield Trial("client.tool_schema_key_order", "text", trial, detail, None, _facts(old, new))
    elif same_tool_set(old, new):
        ordered = tuple(_in_order_of(old, new))
        trial = pair.with_later(replace(pair.later, tools=ordered))
        detail = f"the same tools in another order: {_names(old)} became {_names(new)}"
        yield Trial("client.tools_reordered", "messages", trial, detail, None, _facts(old, new))
    else:
        trial = pair.with_later(replace(pair.later, tools=pair.earlier.tools))
        yield Trial(
            "client.tools_changed", "messages", trial, _changes(old, new), None, _facts(old, new)
        )


def undo_kwargs(pair: Pair) -> Iterator[Trial]:
    """Give the later request the earlier one's arguments to the template."""
    old, new = pair.earlier.kwargs, pair.later.kwargs
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    if changed:
        trial = pair.with_later(replace(pair.later, kwargs=old))
        detail = ", ".join(
            f"{key} went from {old.get(key)!r} to {new.get(key)!r}" for key in changed
        )
        yield Trial("client.template_kwargs_changed", "messages", trial, detail)


def same_tool_set(old: Sequence[Tool], new: Sequence[Tool]) -> bool:
    """Say whether both lists hold the same tools, in whatever order."""
    return sorted(map(_canonical, old)) == sorted(map(_canonical, new))


def tool_name(tool: Any) -> str:
    """Return the name of a tool in OpenAI's form, flat or nested."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else {}
    return str(inner.get("name", "?")) if isinstance(inner, dict) else "?"


def _facts(old: Sequence[Tool], new: Sequence[Tool]) -> dict[str, Any]:
    return {"tools_same_set": same_tool_set(old, new)}


def _canonical(tool: Tool) -> str:
    return json.dumps(tool, sort_keys=True)


def _in_order_of(old: Sequence[Tool], new: Sequence[Tool]) -> Iterator[Tool]:
    left = list(new)
    for tool in old:
        found = next(one for one in left if _canonical(one) == _canonical(tool))
        left.remove(found)
        yield found


def _rewritten(old: Sequence[Tool], new: Sequence[Tool]) -> list[Tool]:
    pairs = zip(old, new, strict=True)
    return [after for before, after in pairs if not same_text(before, after)]


def _changes(old: Sequence[Tool], new: Sequence[Tool]) -> str:
    before = {tool_name(tool): _canonical(tool) for tool in old}
    after = {tool_name(tool): _canonical(tool) for tool in new}
    both = before.keys() & after.keys()
    lists = {
        "added": after.keys() - before.keys(),
        "removed": before.keys() - after.keys(),
        "redefined": {name for name in both if before[name] != after[name]},
    }
    return "; ".join(f"tools {verb}: {', '.join(sorted(n))}" for verb, n in lists.items() if n)


def _names(tools: Sequence[Tool]) -> str:
    return ", ".join(tool_name(tool) for tool in tools)
