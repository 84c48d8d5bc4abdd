"""`docs/reference/gateway-config.md`, made from the parts themselves.

python -m tests.docs.config_reference > docs/reference/gateway-config.md
"""

import ast
import inspect
import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from itertools import pairwise
from typing import Any, get_args, get_type_hints

from warmturn.gateway.config import Config
from warmturn.gateway.config_file import accepted_values

HEAD = """# The gateway's configuration file

`warmturn serve --config FILE.toml`. Every table and key may be left out, except where it says so.
Options on the command line go before the file. `SIGHUP`, or `POST /warmturn/reload` on the admin
port, reads the file again and takes over `replicas` and `health`; if anything else was changed, it
refuses and changes nothing.

This page is made from the code (`tests/docs/config_reference.py`), and a test compares the two.
"""


def reference() -> str:
    """Return the page."""
    kinds = get_type_hints(Config)
    tables = [_table(one.name, kinds[one.name]) for one in fields(Config)]
    return HEAD + "".join(tables)


def _table(name: str, kind: Any) -> str:
    part = next(one for one in (kind, *get_args(kind)) if is_dataclass(one))
    heading = f"`[[{name}]]`, one for each" if part is not kind else f"`[{name}]`"
    doc = (inspect.getdoc(part) or "").split("\n")[0]
    reasons, types = _reasons(part), get_type_hints(part, include_extras=True)
    rows = "".join(
        f"| `{one.name}` | {accepted_values(types[one.name])} | {_default(one)} "
        f"| {reasons[one.name]} |\n"
        for one in fields(part)
    )
    return f"\n## {heading}\n\n{doc}\n\n| key | takes | default | meaning |\n| --- | --- | --- | --- |\n{rows}"


def _reasons(part: type) -> dict[str, str]:
    """Return the string below each field of the class."""
    body = ast.parse(inspect.getsource(part)).body[0].body
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def _default(one: Field) -> str:
    if one.default is MISSING:
        return "required" if one.default_factory is MISSING else "-"
    value = one.default
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    number = f"{value:_}" if isinstance(value, int) and value >= 10_000 else str(value)
    shown = f'"{value}"' if isinstance(value, str | Enum) else number
    return f"`{shown}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
