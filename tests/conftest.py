"""Options of the whole suite; they live here so that a plain `pytest` knows them too."""

from pathlib import Path

import pytest

OWN_CASES = Path(__file__).parent / "cases" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cases", "real reports with their right answers (tests/cases)")
    group.addoption(
        "--cases",
        type=Path,
        default=OWN_CASES,
        metavar="DIR",
        help="folder of cases, or one case (default: tests/cases/data)",
    )
    group.addoption(
        "--part",
        metavar="N",
        help="only the cases of one part: 4 or 4-salts (default: all parts)",
    )


@pytest.fixture(scope="session")
def smollm_dir() -> Path:
    """The default model's directory; fetched on first use, skipped where it cannot be."""
    from warmturn.engine.fetch import fetch_default_model
    from warmturn.errors import PeerError

    try:
        return fetch_default_model()
    except PeerError as error:
        pytest.skip(f"no model: {error}")
