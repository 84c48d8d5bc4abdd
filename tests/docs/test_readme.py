"""The README's promises that a program can check."""

import re
from pathlib import Path

import warmturn

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SOURCES = Path(warmturn.__file__).parent
ROW = re.compile(r"^\| `(?P<name>\w+)(?:\.py|/)` \|", re.MULTILINE)


def test_the_layout_table_lists_every_part_of_the_package_and_no_other():
    there = {
        path.stem
        for path in SOURCES.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert set(ROW.findall(README)) == {name for name in there if not name.startswith("_")}


def test_the_first_screen_has_one_command_and_its_output():
    first_screen = README.split("\n## ")[0].splitlines()
    assert len(first_screen) <= 40
    assert "make demo" in first_screen
    assert sum(line.startswith("```") for line in first_screen) == 4
