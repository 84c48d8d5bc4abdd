"""One test per case folder, named after it."""

import pytest

from tests.cases.discovery import find_cases, part_named


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case_folder" not in metafunc.fixturenames:
        return
    word = metafunc.config.getoption("--part")
    folders = find_cases(
        metafunc.config.getoption("--cases").resolve(), None if word is None else part_named(word)
    )
    metafunc.parametrize("case_folder", folders, ids=[folder.name for folder in folders])
