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
def model_directory():
    """Name -> directory of a real tokenizer; skips, saying so, where it cannot be fetched."""
    from tests.support import corpora

    def find(name: str) -> Path:
        try:
            return corpora.tokenizer_directory(name)
        except corpora.UnavailableError as reason:
            pytest.skip(f"no {name} tokenizer: {reason}")

    return find


@pytest.fixture(scope="session")
def smollm_dir(model_directory) -> Path:
    """The default model, weights and all."""
    return model_directory("smollm2")
