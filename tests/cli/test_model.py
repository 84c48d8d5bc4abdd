import json

import pytest
from typer.testing import CliRunner

from warmturn.cli.model import DEFAULT_MODEL, app
from warmturn.engine import fetch
from warmturn.errors import PeerError


@pytest.fixture
def model_dir(tmp_path, monkeypatch):
    """Stands for a fetched model of 300 bytes."""
    (tmp_path / "model.safetensors").write_bytes(bytes(300))

    def resolve(model, *, progress):
        progress(100, None)
        progress(300, 300)
        if model == "broken":
            raise PeerError("wrong checksum")
        return tmp_path

    monkeypatch.setattr(fetch, "resolve_model", resolve)
    return tmp_path


def test_fetch_prints_the_directory(model_dir):
    result = CliRunner().invoke(app, ["fetch"])
    assert result.exit_code == 0
    assert result.stdout.strip() == str(model_dir)


def test_json_goes_to_standard_output_alone(model_dir):
    result = CliRunner().invoke(app, ["fetch", "some.gguf", "--json", "-"])
    assert json.loads(result.stdout) == {
        "model": "some.gguf",
        "directory": str(model_dir),
        "num_bytes": 300,
    }


def test_errors_reach_the_one_place_that_shows_them(model_dir):
    result = CliRunner().invoke(app, ["fetch", "broken"])
    assert isinstance(result.exception, PeerError)


def test_the_default_is_the_engines_own():
    """Written twice so that `--help` loads nothing heavy."""
    assert DEFAULT_MODEL == fetch.DEFAULT_MODEL
