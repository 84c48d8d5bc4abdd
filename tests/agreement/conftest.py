"""Fixtures of the agreement tests; tests/ holds no packages, so helpers are loaded by path."""

import importlib.util
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


@lru_cache
def _support(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"warmturn_test_{name}", SUPPORT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def conversations():
    """Name → arguments of a render."""
    return _support("conversations").CONVERSATIONS


@pytest.fixture(scope="session")
def model_directory():
    """Name → directory of a real tokenizer; skips where it cannot be fetched."""
    corpora = _support("corpora")

    def find(name: str) -> Path:
        try:
            return corpora.tokenizer_directory(name)
        except corpora.UnavailableError as reason:
            pytest.skip(f"no {name} tokenizer: {reason}")

    return find
