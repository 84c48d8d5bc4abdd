"""The documentation site builds without a warning."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed"
)
def test_the_site_builds_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    result = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "site" / "life-of-a-turn" / "index.html").is_file()
