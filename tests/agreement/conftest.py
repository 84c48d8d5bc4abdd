"""Fixtures of the agreement tests."""

import importlib.util
from pathlib import Path

import pytest

SHAPES = Path(__file__).parents[1] / "support" / "conversations.py"


@pytest.fixture(scope="session")
def conversations():
    """Name → arguments of a render; tests/ holds no packages, so it is loaded by path."""
    spec = importlib.util.spec_from_file_location("warmturn_test_conversations", SHAPES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CONVERSATIONS
