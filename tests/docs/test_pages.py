"""Every page: its commands run, its Python runs, its links and names point at something."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import warmturn
from tests.docs.fences import fences_of
from tests.docs.sessions import run_bash, run_console

ROOT = Path(__file__).parents[2]
FILE_LINK = re.compile(r"\((?:https://github\.com/[\w-]+/warmturn/(?:blob|tree)/main/)([^)#]+)")
RELATIVE_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
DOTTED_NAME = re.compile(r"`(?:warmturn\.)?((?:[a-z_]+\.)+\w+)(?:\(\))?`")
SOURCE_PATH = re.compile(r"`((?:src|tests|benchmarks|docs|examples)/[\w./-]+)`")
PACKAGES = {path.stem for path in Path(warmturn.__file__).parent.iterdir()} - {"__init__"}


def prose_of(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_each_command_runs_and_prints_what_the_page_shows(shell_fence, folder, environment):
    if shell_fence.not_run:
        pytest.skip(shell_fence.not_run)
    if shell_fence.language == "console":
        run_console(shell_fence.body, folder, environment)
        return
    result = run_bash(shell_fence.body, folder, environment)
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_python_block_runs_by_itself(python_fence, folder, environment):
    if python_fence.not_run:
        pytest.skip(python_fence.not_run)
    (folder / "block.py").write_text(python_fence.body)
    result = run_bash("python -W error block.py", folder, environment)
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_interpreter_session_prints_what_the_page_shows(page):
    sessions = "".join(fence.body for fence in fences_of(page) if fence.language == "pycon")
    example = doctest.DocTestParser().get_doctest(sessions, {}, page.name, str(page), 0)
    failures: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert failures == [], "".join(failures)


def test_each_link_to_a_file_of_the_repository_points_at_one(page):
    linked = set(FILE_LINK.findall(page.read_text()))
    assert {path for path in linked if not (ROOT / path).exists()} == set()


def test_each_relative_link_points_at_a_file(page):
    linked = set(RELATIVE_LINK.findall(prose_of(page)))
    assert {path for path in linked if not (page.parent / path).exists()} == set()


def test_each_path_that_a_page_names_exists(page):
    named = set(SOURCE_PATH.findall(prose_of(page)))
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_each_dotted_name_of_our_packages_exists(page):
    named = {name for name in DOTTED_NAME.findall(prose_of(page)) if is_ours(name)}
    assert {name for name in named if not exists(name)} == set()


def is_ours(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES and not name.endswith((".py", ".md"))


def exists(name: str) -> bool:
    """Import the longest module in the name, then look the rest up."""
    parts = name.split(".")
    for stop in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["warmturn", *parts[:stop]]))
        except ModuleNotFoundError:
            continue
        for part in parts[stop:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def test_a_name_that_does_not_exist_would_be_seen():
    assert exists("errors.NeverFits")
    assert exists("metrics.TurnMetrics.ttft_s")
    assert not exists("errors.Forgotten")
    assert not exists("cache.forgotten.Pool")
