"""The Jinja environment chat templates are written for, the same that Hugging Face gives them.

Behaviour follows transformers 5.24 `utils/chat_template_utils.py`: an immutable sandbox with
`trim_blocks`, `lstrip_blocks`, loop controls, the `{% generation %}` tag, a `tojson` that does
not escape HTML, `raise_exception`, and `dict` and `namespace` without their back doors.
`strftime_now` is not here: it needs the time, and each render brings its own.
"""

import json
from collections.abc import Callable
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_eval_context

from warmturn.render.messages import PlainMessage

__all__ = ["MAX_RENDERED_CHARS", "chat_environment"]

MAX_RENDERED_CHARS = 32 * 1024 * 1024
"""Longest text a template may give or repeat, in characters: far over a million-token prompt."""

_AS_MOST_ASK = json.JSONEncoder(ensure_ascii=False)
"""`tojson` without arguments; `json.dumps` would make a new one for each value."""

_MAX_POWER_BITS = 4096
_PLAIN_TYPES = frozenset({dict, PlainMessage})
_DICT_NAMES = frozenset(dir(dict))


def chat_environment() -> ImmutableSandboxedEnvironment:
    """Make a fresh environment; compile templates with its `from_string`."""
    environment = _BoundedSandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["dict"] = _Dict()
    environment.globals["namespace"] = _Namespace
    return environment


class _BoundedSandbox(ImmutableSandboxedEnvironment):
    """The sandbox, which also refuses the two operators that make gigabytes of a short template."""

    intercepted_binops = frozenset({"*", "**"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As inherited, by a shorter way for what templates ask most: `message.role`."""
        if type(obj) in _PLAIN_TYPES and attribute not in _DICT_NAMES:
            try:
                return obj[attribute]
            except KeyError:
                # The error says what type this was: for a template it is a dictionary.
                return self.undefined(obj={}, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            _check_repeat(left, right)
        else:
            _check_power(left, right)
        return super().call_binop(context, operator, left, right)


def _check_repeat(left: Any, right: Any) -> None:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, (str, list, tuple)) and isinstance(count, int):
            length = len(sequence) * count
            if length > MAX_RENDERED_CHARS:
                raise SecurityError(f"a repeat of {length} items is over {MAX_RENDERED_CHARS}")


def _check_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int):
        bits = base.bit_length() * exponent
        if bits > _MAX_POWER_BITS:
            raise SecurityError(f"a power of {bits} bits is over {_MAX_POWER_BITS}")


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks the reply for training; here it is only text."""

    tags = {"generation"}  # noqa: RUF012 - declared so by jinja2

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_render_body")
        return nodes.CallBlock(call, [], [], body).set_lineno(lineno)

    @pass_eval_context
    def _render_body(self, _context: EvalContext, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """Stands for `dict`: callable, but not the type itself, whose attributes lead out."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """Stands for `namespace`; refuses names with a leading underscore, as Hugging Face does."""

    # Without a named `self`, so that a template may call `namespace(self=...)`.
    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}: names may not start with '_'")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Python writes it: no HTML escapes, non-ASCII text kept. Templates call it by place."""
    if type(value) is not PlainMessage:
        return _dumped(value, ensure_ascii, indent, separators, sort_keys)
    how = (ensure_ascii, indent, separators, sort_keys)
    if how not in value.dumped:
        value.dumped[how] = _dumped(value, *how)
    return value.dumped[how]


def _dumped(
    value: Any,
    ensure_ascii: bool,
    indent: int | None,
    separators: tuple[str, str] | None,
    sort_keys: bool,
) -> str:
    if not ensure_ascii and indent is None and separators is None and not sort_keys:
        return _AS_MOST_ASK.encode(value)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
