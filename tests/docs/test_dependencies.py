"""Each dependency has a line that says why, and no line is about one we no longer have."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGE = (ROOT / "docs" / "design" / "dependencies.md").read_text()


def names(requirements: list[str]) -> set[str]:
    found = {re.split(r"[<>=\[]", line)[0].strip().lower() for line in requirements}
    return found - {"warmturn"}


def explained(section: str) -> set[str]:
    body = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([\w, -]+) \|", body, re.MULTILINE)
    return {name.strip().lower() for row in rows for name in row.split(",")} - {"package", "---"}


def test_the_base_install_is_explained():
    assert explained("Base") == names(PROJECT["project"]["dependencies"])


def test_the_extras_are_explained():
    extras = PROJECT["project"]["optional-dependencies"]
    assert explained("Extras") == names([line for lines in extras.values() for line in lines])


def test_what_the_tests_need_is_explained():
    needed = names(PROJECT["dependency-groups"]["dev"]) - explained("Extras")
    assert explained("For tests only") == needed
