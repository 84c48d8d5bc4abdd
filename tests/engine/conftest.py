"""Real weights, fetched once into the user's cache."""

import pytest

from warmturn.engine.fetch import fetch_default_model


@pytest.fixture(scope="session")
def smollm_dir():
    return fetch_default_model()
