"""The error tree is drawn once, in `errors.py`, and the drawing is the truth."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from warmturn import errors

SOURCES = Path(errors.__file__).parent
BRANCH = re.compile(r"^(?P<indent>[│ ]*)(?:[├└]── )?(?P<name>[A-Z]\w+)(?:  +|$)")


def drawn_parents(drawing: str) -> dict[str, str | None]:
    """Return class to parent as drawn; the root has no parent."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in drawing.splitlines():
        match = BRANCH.match(line)
        if not match:
            continue
        is_root = "──" not in line
        depth = 0 if is_root else len(match["indent"]) // 4 + 1
        path[depth:] = [match["name"]]
        parents[match["name"]] = path[depth - 1] if depth else None
    return parents


def real_parents() -> dict[str, str | None]:
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    root = errors.WarmturnError
    return {
        cls.__name__: None if cls is root else cls.__bases__[0].__name__
        for cls in classes
        if issubclass(cls, root)
    }


def test_the_drawn_tree_is_the_real_tree():
    assert drawn_parents(errors.__doc__) == real_parents()


def test_a_wrong_drawing_would_be_seen():
    drawing = errors.__doc__.replace("│   │   ├── NeverFits", "│   ├── NeverFits")
    assert drawing != errors.__doc__
    assert drawn_parents(drawing) != real_parents()


@pytest.mark.parametrize("name", sorted(real_parents()))
def test_each_error_has_one_parent_and_a_sentence_of_its_own(name):
    cls = getattr(errors, name)
    assert len(cls.__bases__) == 1
    assert cls.__doc__.endswith(".")


def test_no_other_module_grows_the_tree():
    strays = [
        f"{path.relative_to(SOURCES)}: {node.name}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and base_names(node) & real_parents().keys()
    ]
    assert strays == []


def base_names(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}
