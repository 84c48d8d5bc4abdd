"""Finds out whether a template walks through content parts or wants one string.

A template that has `{% for part in message.content %}` gets a list of parts; any other gets
the parts' text joined. The rule is vLLM's (`--chat-template-content-format auto`), read off
the syntax tree, so that one conversation gives both servers the same prompt.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from jinja2 import nodes

__all__ = ["ContentFormat", "content_format"]

ContentFormat: TypeAlias = Literal["string", "openai"]
"""`openai`: content is a list of parts; `string`: content is one string."""


class _Unclear(Exception):
    """A loop or an assignment has a target that is not a plain name."""


def content_format(tree: nodes.Template) -> ContentFormat:
    """Return the form of content that the template with this syntax `tree` expects.

    Where names cannot be followed (a namespace attribute, an unpacked tuple) it is `string`,
    as in vLLM.
    """
    try:
        message_names = list(_loop_names(tree, _aliases(tree, "messages")))
        has_part_loop = any(_loop_names(tree, message_names, "content"))
    except _Unclear:
        return "string"
    return "openai" if has_part_loop else "string"


def _aliases(tree: nodes.Template, name: str) -> list[str]:
    """`name` and every name assigned from it, slices and filters of it included."""
    names = [name]
    for known in names:  # grows while it is walked
        for assign in tree.find_all(nodes.Assign):
            if _reads(assign.node, known) and _target(assign.target) not in names:
                names.append(_target(assign.target))
    return names


def _loop_names(tree: nodes.Template, names: list[str], key: str | None = None) -> Iterator[str]:
    """Names that loops give to the items of one of `names`, or of its `key`."""
    for loop in tree.find_all(nodes.For):
        if any(_reads(loop.iter, name, key) for name in names):
            yield _target(loop.target)


def _target(node: nodes.Node) -> str:
    if not isinstance(node, nodes.Name):
        raise _Unclear
    return node.name


def _reads(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Whether `node` is the variable `name`, or its `key`, perhaps filtered, tested or sliced."""
    if isinstance(node, (nodes.Filter, nodes.Test)):
        return _reads(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _reads(node.node, name, key)
    if key is None:
        return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
    if isinstance(node, nodes.Getattr):
        return node.attr == key and _reads_name(node.node, name)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value == key and _reads_name(node.node, name)
    return False


def _reads_name(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
