"""The page of configuration keys is what the parts say."""

from pathlib import Path

from tests.docs.config_reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "gateway-config.md"


def test_the_reference_of_configuration_keys_is_up_to_date():
    """Write it anew: python -m tests.docs.config_reference > docs/reference/gateway-config.md."""
    assert PAGE.read_text() == reference()


def test_every_key_has_a_meaning_and_what_it_takes():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert all(cells), row
        assert cells[-1].endswith("."), row
