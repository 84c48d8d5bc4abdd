"""The runner as a user starts it: on another folder, on one part, on wrong and broken cases."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SALTS = {
    "kind": "salt-format",
    "samples": [{"id": "empty", "value": ""}, {"id": "plain", "value": "tenant"}],
    "tenants": [],
}


def write_case(folder: Path, *, empty_is_valid: bool, part: str = "4-salts") -> None:
    folder.mkdir(parents=True)
    (folder / "input.json").write_text(json.dumps(SALTS))
    expected = {
        "case": folder.name,
        "part": part,
        "kind": "salt-format",
        "valid": {"empty": empty_is_valid, "plain": True},
        "own_salts_valid": True,
        "notes": {},
    }
    (folder / "expected.json").write_text(json.dumps(expected))


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", HERE / "test_cases.py", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*map(str, [*command, *arguments])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_wrong_right_broken_and_unbuilt_cases_of_another_folder_are_told_apart(tmp_path):
    write_case(tmp_path / "right", empty_is_valid=False)
    write_case(tmp_path / "wrong", empty_is_valid=True)
    write_case(tmp_path / "broken", empty_is_valid=False, part="3-router")
    shutil.copytree(HERE / "data" / "R11-fleet-imbalance", tmp_path / "unbuilt")
    result = run("--cases", tmp_path, "-p", "tests.support.unbuilt_kinds")
    assert result.returncode == 1, result.stdout
    assert "2 failed, 2 skipped" in result.stdout
    assert "valid.empty: expected True, got False" in result.stdout
    assert "part '3-router' has no kind 'salt-format'" in result.stdout
    assert "right: valid right; not built: own_salts_valid" in result.stdout
    assert "unbuilt: kind fleet-choice of part 3-router is not built yet" in result.stdout


def test_one_part_is_chosen_by_number(tmp_path):
    write_case(tmp_path / "salts", empty_is_valid=False)
    shutil.copytree(HERE / "data" / "R11-fleet-imbalance", tmp_path / "router")
    result = run("--cases", tmp_path, "--part", "3", "--collect-only", "-q")
    assert "[router]" in result.stdout
    assert "[salts]" not in result.stdout


def test_a_folder_without_cases_is_an_error_and_no_empty_success(tmp_path):
    result = run("--cases", tmp_path)
    assert result.returncode == 2, result.stdout
    assert "0 cases" in result.stdout
