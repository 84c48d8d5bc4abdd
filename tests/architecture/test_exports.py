"""What a package exports is what its `__all__` says: sorted, complete, existing."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

import warmturn

SOURCES = Path(warmturn.__file__).parent


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCES.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


# From the files, not by importing: one module that cannot be imported fails its own tests only.
PACKAGES = sorted(dotted(path) for path in SOURCES.rglob("__init__.py"))
INSIDE_VLLM = {"warmturn.integrations.vllm_offload", "warmturn.integrations.vllm_tier"}
"""Import vLLM, so only vLLM's own environment can load them: tests/vllm does."""
FILES = {dotted(p): p for p in SOURCES.rglob("*.py") if p.name != "__main__.py"}
MODULES = sorted(FILES.keys() - INSIDE_VLLM)


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def public_names(package: ModuleType) -> set[str]:
    """Return what the package binds itself or takes from its own modules."""
    return {
        name
        for name, value in vars(package).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and is_own(package, str(getattr(value, "__module__", package.__name__)))
    }


def is_own(package: ModuleType, origin: str) -> bool:
    return f"{origin}.".startswith(f"{package.__name__}.")


def reading_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions: the order the linter keeps."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def test_only_modules_that_import_vllm_are_left_to_its_own_environment():
    importing = {
        name
        for name, path in FILES.items()
        if re.search(r"^(?:from|import) vllm\b", path.read_text(), re.MULTILINE)
    }
    assert importing == INSIDE_VLLM


@pytest.mark.parametrize("name", MODULES)
def test_the_export_list_is_sorted_and_each_name_exists(name):
    module = load(name)
    exported = list(getattr(module, "__all__", []))
    assert exported == sorted(set(exported), key=reading_order)
    assert [item for item in exported if not hasattr(module, item)] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_exports_every_public_name_it_binds(name):
    package = load(name)
    assert public_names(package) - set(getattr(package, "__all__", [])) == set()


@pytest.mark.parametrize("name", MODULES)
def test_each_module_opens_with_a_docstring(name):
    assert (load(name).__doc__ or "").strip()


def test_a_name_that_is_bound_and_not_exported_would_be_seen():
    package = ModuleType("warmturn.planted")
    package.Forgotten = type("Forgotten", (), {"__module__": "warmturn.planted.inner"})
    package.foreign = importlib.import_module("pathlib").Path
    package.Lent = type("Lent", (), {"__module__": "warmturn.planted_elsewhere"})
    assert public_names(package) == {"Forgotten"}
