import json
import subprocess
import sys

import pytest

from warmturn.cli.output import check_json_target, write_json
from warmturn.errors import InvalidInput


def test_what_can_be_written_passes_and_nothing_is_written_yet(tmp_path):
    for target in (None, "-", str(tmp_path / "new.json")):
        check_json_target(target)
    assert not list(tmp_path.iterdir())


def test_a_file_is_written_whole(tmp_path):
    write_json({"a": [1]}, str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [1]}


@pytest.mark.parametrize("name", ["", "nowhere/a.json", "file/a.json"])
def test_what_cannot_be_written_is_refused_before_and_after(tmp_path, name):
    (tmp_path / "file").touch()
    target = str(tmp_path / name)
    for refuse in (lambda: check_json_target(target), lambda: write_json({}, target)):
        with pytest.raises(InvalidInput, match=r"--json .*; name a file that can be written"):
            refuse()


@pytest.mark.parametrize("command", [["demo"], ["engine"], ["model", "fetch"]])
def test_every_command_refuses_it_before_any_work(tmp_path, command):
    """At once: no model is looked for."""
    target = str(tmp_path / "nowhere" / "a.json")
    words = [*command, "--json", target]
    words += [] if command[0] == "model" else ["--model", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "warmturn", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    reason = f"{tmp_path}/nowhere is not a directory; name a file that can be written"
    assert done.stderr == f"warmturn: --json {target}: {reason}\n"
