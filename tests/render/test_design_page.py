"""The worked example of the design page is true."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "design" / "rendering.md"


def test_the_worked_example_runs():
    failed, attempted = doctest.testfile(str(PAGE), module_relative=False)
    assert attempted == 8
    assert failed == 0
