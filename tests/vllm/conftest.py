"""Two servers for the whole lane, started together, each on its own core."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vllm import servers

TEMPLATES = Path(__file__).parent / "templates"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what starts the servers again, with other settings, behind what shares them."""
    items.sort(key=lambda item: item.path.name == "test_gateway.py")


@pytest.fixture(scope="session")
def environment() -> Path:
    """Where vLLM is installed; `make test-vllm` says so."""
    assert "WARMTURN_VLLM" in os.environ, "run `make test-vllm`: it makes vLLM's environment"
    return Path(os.environ["WARMTURN_VLLM"])


@pytest.fixture(scope="session")
def model() -> Path:
    """The default model; without it the lane fails, it does not skip."""
    from warmturn.engine.fetch import fetch_default_model

    return fetch_default_model()


@pytest.fixture(scope="session")
def pair(environment: Path, model: Path) -> Iterator[tuple[servers.Server, servers.Server]]:
    """Both servers. The first has room and the model's own template, the second is small."""
    folder = Path(tempfile.mkdtemp(prefix="wt"))  # short: socket paths have 107 characters
    started = []
    try:
        for core, (name, num_blocks, options) in enumerate(
            (
                ("roomy", 257, ()),
                ("small", 49, ("--chat-template", str(TEMPLATES / "reasoning_and_tools.jinja"))),
            )
        ):
            (folder / name).mkdir()
            started.append(
                servers.start(
                    environment,
                    model,
                    folder / name,
                    core=core % (os.cpu_count() or 1),
                    num_blocks=num_blocks,
                    options=options,
                )
            )
        for server in started:
            servers.wait_until_ready(server)
        yield started[0], started[1]
    finally:
        for server in started:
            server.stop()
        shutil.rmtree(folder)


@pytest.fixture
def roomy(pair: tuple[servers.Server, servers.Server]) -> servers.Server:
    """8,192 tokens of room and the model's own chat template; empty."""
    pair[0].empty()
    return pair[0]


@pytest.fixture
def small(pair: tuple[servers.Server, servers.Server]) -> servers.Server:
    """1,536 tokens of room, and a template that prints reasoning and tools; empty."""
    pair[1].empty()
    return pair[1]
