"""Templates that write each message by itself: their text can be put together from known pieces.

Many templates are one loop over the messages whose body looks at nothing but the message. Of such
a template the text of a message is the same in every prompt, so what was written once need not be
written again. Whether a template is one is read off its syntax tree, never tried out: the messages
appear once, as what the loop runs over; the loop's body knows neither its place in the loop nor
any state that lasts longer than one message.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Environment, Template, nodes

from warmturn.render.bounded_text import bounded_text
from warmturn.render.messages import PlainMessage

__all__ = ["ByMessage", "by_message"]

_MARK = "\ufdd0\x00\ufdd1"
"""Stands before each message and behind the last. Not a character: a text that has it is refused."""

_STATEFUL = frozenset({"loop", "namespace", "cycler", "joiner", "lipsum", "self", "caller"})
_NOT_STATIC = (
    nodes.NSRef, nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block,
    nodes.Break, nodes.Continue,
)  # fmt: skip


_MOST_TEXTS = 8
"""Texts kept of one message; other tools or times make others."""

_MOST_ENDS = 256
"""Sets of variables: a system's tools are few, or change with every request."""

_KEY = "exact"
_SCALARS = frozenset({type(None), bool, int, str})


def by_message(source: str, environment: Environment) -> "ByMessage | None":
    """Return the template in pieces, None where one message may have a say in another's text."""
    tree = environment.parse(source)
    loop = _only_loop(tree)
    if loop is None:
        return None
    used = _names(tree) - {"messages"}
    is_set_before = any(True for _ in tree.find_all((nodes.Assign, nodes.AssignBlock, nodes.Macro)))
    used_in_loop = used if is_set_before else _names(loop) - {"messages"}
    loop.body.insert(0, _mark())
    tree.body.insert(tree.body.index(loop) + 1, _mark())
    marked = Template.from_code(
        environment, environment.compile(tree), environment.make_globals(None), None
    )
    return ByMessage(marked, used, used_in_loop)


def _only_loop(tree: nodes.Template) -> nodes.For | None:
    """Return the one loop over the messages, if all holds that the module's docstring asks for."""
    names = [name for name in tree.find_all(nodes.Name) if name.name == "messages"]
    loops = [node for node in tree.body if isinstance(node, nodes.For)]
    found = next((loop for loop in loops if loop.iter in names), None)
    if found is None or len(names) != 1 or any(True for _ in tree.find_all(_NOT_STATIC)):
        return None
    is_plain = isinstance(found.target, nodes.Name) and not found.else_ and not found.recursive
    return found if is_plain and found.test is None and not _names(tree) & _STATEFUL else None


def _names(node: nodes.Node) -> set[str]:
    return {name.name for name in node.find_all(nodes.Name)}


def _mark() -> nodes.Output:
    return nodes.Output([nodes.TemplateData(_MARK)])


class ByMessage:
    """Writes prompts, each `PlainMessage` once for each set of the variables that matter."""

    def __init__(self, marked: Template, used: set[str], used_in_loop: set[str]) -> None:
        self._marked = marked
        self._used, self._used_in_loop = sorted(used), sorted(used_in_loop)
        self._ends: dict[Any, tuple[str, str]] = {}

    def text(self, variables: Mapping[str, Any], *, now: datetime) -> str | None:
        """Return the prompt; None where it has to be written as a whole."""
        messages = variables["messages"]
        key = _key(self._used_in_loop, variables, now)
        known = [m.written.get(key) if type(m) is PlainMessage else None for m in messages]
        ends_key = _key(self._used, variables, now)
        ends = self._ends.get(ends_key)
        new = [m for m, text in zip(messages, known, strict=True) if text is None]
        if new or ends is None:
            parts = bounded_text(self._marked, {**variables, "messages": new}).split(_MARK)
            if len(parts) != len(new) + 2:  # the mark stands in a text
                return None
            ends = self._remember(ends_key, (parts[0], parts[-1]))
            fresh = iter([_kept(m, key, text) for m, text in zip(new, parts[1:-1], strict=True)])
            known = [next(fresh) if text is None else text for text in known]
        return "".join((ends[0], *filter(None, known), ends[1]))

    def _remember(self, key: Any, ends: tuple[str, str]) -> tuple[str, str]:
        if len(self._ends) >= _MOST_ENDS:
            self._ends.clear()
        self._ends[key] = ends
        return ends


def _kept(message: Any, key: Any, text: str) -> str:
    if type(message) is PlainMessage:
        if len(message.written) >= _MOST_TEXTS:
            message.written.clear()
        message.written[key] = text
    return text


def _key(names: Sequence[str], variables: Mapping[str, Any], now: datetime) -> tuple[Any, ...]:
    """What the named variables are; the clock stands for the function that shows it."""
    return tuple(
        now if name == "strftime_now" else _exact(variables[name])
        for name in names
        if name in variables
    )


def _exact(value: Any) -> Any:
    """Return text that differs wherever two values do, order of keys included."""
    if isinstance(value, list):
        return tuple(map(_exact, value))
    if type(value) is not PlainMessage:
        return repr(value) if type(value) in _SCALARS else json.dumps(value)
    if _KEY not in value.dumped:
        value.dumped[_KEY] = json.dumps(value)
    return value.dumped[_KEY]
