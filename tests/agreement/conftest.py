"""Fixtures of the agreement tests."""

import pytest

from tests.support.conversations import CONVERSATIONS


@pytest.fixture(scope="session")
def conversations():
    """Name -> arguments of a render."""
    return CONVERSATIONS
