"""`warmturn vllm command`: the line, the warnings, and starting a program that stands for vLLM."""

import json
import subprocess
import sys

import pytest

from warmturn.cli import main
from warmturn.cli.vllm import command


def run(monkeypatch, capsys, *arguments):
    """Return exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["warmturn", "vllm", "command", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, *capsys.readouterr()


@pytest.fixture
def program(tmp_path):
    """A `vllm` that prints what it was given, beside a `python` that knows its version."""
    texts = {"vllm": '#!/bin/sh\necho "stats=$VLLM_NO_USAGE_STATS $*"\nexit 7\n',
             "python": "#!/bin/sh\necho 0.32.0\n"}  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path / "vllm"


def test_the_line_is_all_of_standard_output(monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "org/m")
    assert code == 0
    assert out.startswith("VLLM_NO_USAGE_STATS=1 vllm serve org/m \\\n")
    assert "cached_tokens" in err
    assert "warning" not in err


def test_options_after_the_dashes_are_vllms_own_and_are_warned_of(monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "org/m", "--", "--max-log-len", "9")
    assert code == 0
    assert out.endswith("--max-log-len 9\n")
    assert "warning (measuring) --max-log-len" in err


def test_json_alone_is_on_standard_output(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "org/m", "--json", "-", "--", "--max-log-len", "9")
    data = json.loads(out)
    assert code == 0
    assert data["arguments"][:3] == ["vllm", "serve", "org/m"]
    assert data["warnings"][0]["setting"] == "--max-log-len"
    named = command.__doc__.partition("JSON keys: ")[2].partition(".\n")[0]
    assert set(named.split(", ")) == set(data)


def test_event_sockets_lie_in_a_folder_of_the_users_own(monkeypatch, capsys, tmp_path):
    tmp_path.chmod(0o700)
    _, out, _ = run(monkeypatch, capsys, "m", "--events", tmp_path)
    assert f'"endpoint":"ipc://{tmp_path}/kv.sock"' in out


def test_tiers_are_on_the_line(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "m", "--host-tier", "1GiB", "--disk-tier", "/kv:2GiB")
    assert code == 0
    assert '"host_tier":"1GiB"' in out
    assert '"disk_tier":"/kv:2GiB"' in out


def test_a_folder_that_others_read_is_refused_because_of_what_events_carry(
    monkeypatch, capsys, tmp_path
):
    tmp_path.chmod(0o755)
    code, out, err = run(monkeypatch, capsys, "m", "--events", tmp_path)
    assert (code, out) == (2, "")
    assert "prompts and salts in clear; chmod 700" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--events", "/no/such"), "no such folder"),
        (("--disk-tier", "/kv:1GiB"), "add --host-tier SIZE"),
        (("--host-tier", "much"), "--host-tier: 'much' is no size"),
        (("--host-tier", "1GiB", "--disk-tier", "/kv"), "'/kv' is not PATH:SIZE"),
        (("--host-tier", "1GiB", "--shared-tier", "ftp://x"), "scheme 'ftp' is not known"),
        (("--vllm-version", "0.11"), "options are known for 0.32"),
        (("--run", "--vllm", "no-such-vllm"), "there is no program 'no-such-vllm'"),
        (("--", "--kv-transfer-config", "{"), "--kv-transfer-config holds no JSON"),
        (("--json", "/no/such/file"), "--json /no/such/file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(monkeypatch, capsys, arguments, said):
    code, out, err = run(monkeypatch, capsys, "m", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_run_becomes_the_program_with_its_exit_code(program):
    started = [sys.executable, "-m", "warmturn", "vllm", "command", "m", "--run"]
    result = subprocess.run(
        [*started, "--vllm", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 7
    assert "--enable-prefix-caching \\\n" in result.stdout  # printed first, nothing lost
    assert "stats=1 serve m --host 127.0.0.1 --port 8000" in result.stdout


def test_run_refuses_an_installed_version_that_was_not_tried(monkeypatch, capsys, program):
    (program.parent / "python").write_text("#!/bin/sh\necho 0.9.1\n")
    code, _, err = run(monkeypatch, capsys, "m", "--run", "--vllm", program)
    assert code == 2
    assert "vLLM 0.9.1 was asked for" in err
