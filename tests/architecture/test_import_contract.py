"""The layers hold, and the contract that says so catches what it should catch."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
LAYERS, PURITY = (contract["name"] for contract in CONTRACTS)


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    command = "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"
    return subprocess.run(
        [sys.executable, "-c", command],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignored)
    return tmp_path


def test_every_import_points_down_and_deciding_packages_are_pure():
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("file", "code", "broken"),
    [
        ("cache/planted.py", "import time", PURITY),
        ("cache/planted.py", "from time import monotonic", PURITY),
        ("render/planted.py", "import torch", PURITY),
        ("replica/planted.py", "def wait():\n    import asyncio", PURITY),
        ("blocks/planted.py", "import warmturn.cache", LAYERS),
        ("engine/planted.py", "from warmturn import cli", LAYERS),
        ("unplaced/__init__.py", "", LAYERS),
    ],
)
def test_a_planted_violation_is_caught(copy, file, code, broken):
    planted = copy / "src" / "warmturn" / file
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(f"{code}\n")
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{broken} BROKEN" in result.stdout


def test_every_package_from_the_router_down_is_held_to_purity():
    layers, purity = CONTRACTS
    names = [set(re.findall(r"\w+", layer)) for layer in layers["layers"]]
    first_pure = next(index for index, layer in enumerate(names) if "router" in layer)
    package = ROOT / "src" / "warmturn"
    there = {path.stem for path in package.iterdir()}
    must_be_pure = set().union(*names[first_pure:]) & there
    assert {f"warmturn.{name}" for name in must_be_pure} == set(purity["source_modules"])
