"""The pages that are run, and the environment in which a reader would type."""

import os
import sys
from pathlib import Path

import pytest

from tests.docs.fences import Fence, fences_of

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
RUN = [page for page in PAGES if page.parent.name not in {"design", "reference"}]
"""Pages that tell a reader what to type. Design pages quote benchmarks, which take long."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, languages in {
        "shell_fence": {"console", "bash"},
        "python_fence": {"python"},
    }.items():
        if fixture in metafunc.fixturenames:
            found = [f for page in RUN for f in fences_of(page) if f.language in languages]
            metafunc.parametrize(fixture, [_parameter(fence) for fence in found])
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES, ids=[_name(page) for page in PAGES])


def _parameter(fence: Fence) -> object:
    marks = [pytest.mark.slow] if fence.is_slow else []
    return pytest.param(fence, id=f"{_name(fence.page)}:{fence.line}", marks=marks)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The reader's shell: `python` and `warmturn` are those under test."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, module in {"python": "", "warmturn": "-m warmturn "}.items():
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        command.chmod(0o755)
    return os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "NO_COLOR": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder to run in."""
    path = tmp_path / "reader"
    path.mkdir()
    return path
