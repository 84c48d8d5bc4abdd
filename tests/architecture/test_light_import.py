"""Each check runs in a fresh process: what this process has loaded proves nothing."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

ALLOWED = {"warmturn"}
"""Top-level modules outside the standard library that `import warmturn` may load."""

DRIVERS_OF_AN_EXTRA = {"engine", "gateway", "probe"}
BASE_INSTALL = sorted(
    {path.stem for path in (ROOT / "src" / "warmturn").glob("[!_]*") if path.name != "py.typed"}
    - DRIVERS_OF_AN_EXTRA
)
COMPILED = {"warmturn.blocks.kernels"}
"""Loops that their package loads only where numba is, and does without elsewhere."""
INSIDE_VLLM = {"warmturn.integrations.vllm_offload", "warmturn.integrations.vllm_tier"}
"""Loaded by vLLM, in its environment; see test_exports."""

# Prints the top-level modules that an import brings in, the standard library's left out.
LOADED_BY = """
import json, sys
before = set(sys.modules)
__import__({module!r})
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps(sorted(loaded - set(sys.stdlib_module_names))))
"""

# Imports every module of a package where the extras' packages do not exist.
IMPORT_WITHOUT = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
module = importlib.import_module({module!r})
for found in pkgutil.walk_packages(getattr(module, "__path__", []), {module!r} + "."):
    if found.name not in {compiled!r}:
        importlib.import_module(found.name)
"""


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def import_without(absent: set[str], module: str) -> str:
    return IMPORT_WITHOUT.format(absent=absent, module=module, compiled=COMPILED | INSIDE_VLLM)


def loaded_by(module: str) -> set[str]:
    return set(json.loads(run_python(LOADED_BY.format(module=module))))


def modules_of_extras() -> set[str]:
    extras = PYPROJECT["project"]["optional-dependencies"]
    base = {distribution(line) for line in PYPROJECT["project"]["dependencies"]}
    names = {distribution(line) for lines in extras.values() for line in lines}
    return names - base - {"warmturn"} | {"transformers"}


def distribution(requirement: str) -> str:
    match = re.match(r"[\w-]+", requirement)
    assert match
    return match[0].replace("-", "_").lower()


def test_importing_warmturn_loads_nothing_but_the_standard_library():
    assert loaded_by("warmturn") - ALLOWED == set()


def test_the_command_line_loads_nothing_of_an_extra():
    assert loaded_by("warmturn.cli") & modules_of_extras() == set()


def test_the_extras_are_read_from_the_project_file():
    assert {"torch", "numba", "starlette", "uvicorn", "cbor2"} <= modules_of_extras()
    assert "numpy" not in modules_of_extras()


@pytest.mark.parametrize("name", BASE_INSTALL)
def test_each_module_of_the_base_install_imports_without_any_extra(name):
    run_python(import_without(modules_of_extras(), f"warmturn.{name}"))


def test_an_import_of_an_absent_extra_would_be_seen():
    with pytest.raises(AssertionError, match="No module named 'json'"):
        run_python(import_without({"json"}, "json"))
