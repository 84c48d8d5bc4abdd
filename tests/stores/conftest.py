import pytest

from tests.support.redis_server import redis_server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One Redis for a file's tests."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(server):
    """The same, empty."""
    server.client().flushall()
    return server
