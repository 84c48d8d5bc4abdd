"""The command as a newcomer and as an attacker would call it."""

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.logged import PLAIN, assistant, system, user
from tests.support.tiny_tokenizer import write_tiny_tokenizer
from warmturn.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "clock.jsonl"


@pytest.fixture
def check(monkeypatch, capsys):
    """Run `warmturn check ARGS` in process; return exit code, standard output and error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["warmturn", "check", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return ended.value.code, out, err

    return run


def rows(*systems, extra=""):
    """Return one conversation, a turn for each system text, as lines of a log."""
    messages, lines = [], []
    for turn, text in enumerate(systems):
        messages.append(user(f"question {turn}{extra}"))
        lines.append(json.dumps({"session_id": "s", "messages": [system(text), *messages]}))
        messages.append(assistant(f"answer {turn}"))
    return lines


@pytest.fixture
def clean(tmp_path):
    path = tmp_path / "clean.jsonl"
    path.write_text("\n".join(rows(*["You are a clerk in a library."] * 3)))
    return path


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "broken.jsonl"
    texts = [f"Current time: 10:0{n}. You are a clerk in a library." for n in range(3)]
    path.write_text("\n".join(rows(*texts)))
    return path


# --- what it says -----------------------------------------------------------------------------


def test_the_example_gives_cause_place_and_proven_fix_within_three_seconds():
    start = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "warmturn", "check", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert time.monotonic() - start < 3 * float(os.environ.get("WARMTURN_SLOWNESS", "2"))
    assert result.returncode == 1, result.stderr
    assert "client.timestamp_in_system" in result.stdout
    assert "in messages[0]" in result.stdout
    assert "round the clock in the system text to the day: reuse 14 % → 100 %" in result.stdout
    assert "desk-dan" in result.stdout


def test_a_clean_log_exits_with_0(check, clean):
    code, out, err = check(clean)
    assert code == 0
    assert "0 broken" in out
    assert err == ""


def test_a_log_with_a_break_exits_with_1(check, broken):
    assert check(broken)[0] == 1


def test_a_lower_threshold_lets_it_pass(check, broken):
    assert check(broken, "--fail-under", "0.01")[0] == 0


def test_without_a_model_it_says_what_it_cannot_see(check, clean):
    assert "No --model or --template" in check(clean)[1]


def test_a_template_and_a_tokenizer_count_in_tokens(check, broken, tmp_path):
    (tmp_path / "t.jinja").write_text(PLAIN)
    tokenizer = write_tiny_tokenizer(tmp_path)
    options = ["--template", tmp_path / "t.jinja", "--tokenizer", tokenizer]
    code, out, _ = check(broken, *options, "--prefill-rate", "100")
    assert code == 1
    assert "blocks of 16)" in out
    assert "s of prefill" in out


@pytest.mark.parametrize(
    ("engine", "shown"), [("paged", "blocks of 16"), ("block-quantised", "blocks of 512")]
)
def test_the_block_size_follows_the_engine(check, broken, tmp_path, engine, shown):
    tokenizer = write_tiny_tokenizer(tmp_path)
    long = tmp_path / "long.jsonl"
    long.write_text("\n".join(rows("It is 10:01. " + "x " * 900, "It is 10:02. " + "x " * 900)))
    assert shown in check(long, "--tokenizer", tokenizer, "--engine", engine)[1]


def test_json_on_standard_output_is_nothing_else(check, broken):
    code, out, err = check(broken, "--json", "-")
    assert code == 1
    assert json.loads(out)["num_failures"] == 2
    assert "client.timestamp_in_system" in err


def test_files_are_written_for_every_form(check, broken, tmp_path):
    page, suite, data = (tmp_path / name for name in ("o.html", "o.xml", "o.json"))
    check(broken, "--html", page, "--junit", suite, "--json", data)
    assert page.read_text().startswith("<!doctype html>")
    assert ET.parse(suite).getroot().get("failures") == "2"
    assert json.loads(data.read_text())["files"] == [str(broken)]


def test_a_baseline_lets_old_failures_pass_and_new_ones_fail(check, broken, tmp_path):
    old = tmp_path / "old.json"
    check(broken, "--json", old)
    assert check(broken, "--baseline", old)[0] == 0
    longer = [f"Current time: 10:0{n}. You are a clerk in a library." for n in range(4)]
    broken.write_text("\n".join(rows(*longer)))
    code, out, _ = check(broken, "--baseline", old)
    assert code == 1
    assert "1 under 90 % reuse and 2 more that the baseline knows" in out


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_several_processes_give_the_same_report(check, broken):
    one, several = (check(broken, "--jobs", jobs) for jobs in (1, 3))
    assert several == one
    assert several[0] == 1


def ids_log(path, *prompts):
    """Write a log of token ids alone: nine ids are generated after each prompt."""
    replies = [{"index": 0, "token_ids": [9] * 9, "text": "x"}]
    rows = [{"prompt_token_ids": list(prompt), "choices": replies} for prompt in prompts]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_log_of_token_ids_alone_is_checked_by_its_ids(check, tmp_path):
    first = range(100, 400)
    clean = ids_log(tmp_path / "a.jsonl", first, [*first, *[9] * 9, 5])
    code, out, _ = check(clean)
    assert code == 0
    assert "1 later turn, 0 broken" in out
    broken = ids_log(tmp_path / "b.jsonl", first, [*range(100, 140), 7, *range(141, 400), 9, 5])
    code, out, _ = check(broken)
    assert code == 1
    assert "unknown" in out
    assert "log request bodies for the cause" in out


def test_prompts_of_which_none_continues_another_must_not_pass_as_clean(check, tmp_path):
    path = ids_log(tmp_path / "ids.jsonl", range(100), range(100, 200))
    assert "log the request bodies too" in refused(check, path)


def test_requests_without_messages_are_checked_beside_those_that_have_them(check, clean, tmp_path):
    code, out, _ = check(clean, ids_log(tmp_path / "ids.jsonl", [1, 2]))
    assert code == 0
    assert "4 requests in 2 conversations" in out


def test_gzip_and_several_files_are_read(check, clean, broken, tmp_path):
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(broken.read_bytes()))
    assert check(clean, packed)[0] == 1


def test_standard_input_is_read(clean):
    result = subprocess.run(
        [sys.executable, "-m", "warmturn", "check", "-"],
        input=clean.read_text(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result.stderr


# --- what it refuses --------------------------------------------------------------------------


def refused(check, *arguments):
    """Return the one line with which the command refuses."""
    code, _, err = check(*arguments)
    assert code == 2
    assert err.startswith("warmturn: ")
    assert len(err.splitlines()) == 1
    return err


def test_nothing_to_check(check):
    assert "name log files, or --template-only FILE, or --server URL" in refused(check)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n\n", b"\x00\xff\xfe binary \x80" * 50, b"{", b"[]", b'{"messages": 3}', b"null\n"],
)
def test_a_file_without_any_request(check, tmp_path, content):
    path = tmp_path / "log"
    path.write_bytes(content)
    refused(check, path)


def test_a_file_that_is_not_there(check, tmp_path):
    assert "No such file" in refused(check, tmp_path / "none.jsonl")


def test_a_folder(check, tmp_path):
    assert "directory" in refused(check, tmp_path)


def test_a_truncated_gzip_without_one_whole_line(check, tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b'{"messages": []}' * 99)[:30])
    refused(check, path)


def test_a_format_nobody_knows(check, clean):
    assert "there is no log format 'xml'" in refused(check, clean, "--format", "xml")


def test_a_wrong_format(check, clean):
    refused(check, clean, "--format", "sharegpt")


def test_a_bad_line_is_passed_over_unless_strict(check, clean):
    with clean.open("a") as file:
        file.write('\n{"messages": [\n')
    code, out, _ = check(clean)
    assert code == 0
    assert "clean.jsonl:4: not read: not valid JSON" in out
    assert "line 4" in refused(check, clean, "--strict")


@pytest.mark.parametrize("option", ["--json", "--html", "--junit"])
def test_an_output_that_cannot_be_written(check, clean, option):
    assert f"{option} /proc/none: " in refused(check, clean, option, "/proc/none")


@pytest.mark.parametrize("content", ["", "no json", "[]", '{"conversations": 1}', "\udcff"])
def test_a_baseline_that_is_none(check, clean, tmp_path, content):
    path = tmp_path / "old.json"
    path.write_text(content, errors="surrogateescape")
    assert "write one with --json" in refused(check, clean, "--baseline", path)


def test_a_baseline_that_is_not_there(check, clean, tmp_path):
    assert "No such file" in refused(check, clean, "--baseline", tmp_path / "old.json")


def test_a_template_that_is_not_there_or_does_not_compile(check, clean, tmp_path):
    assert "No such file" in refused(check, clean, "--template", tmp_path / "t.jinja")
    (tmp_path / "t.jinja").write_text("{% if %}")
    assert "not valid Jinja" in refused(check, clean, "--template", tmp_path / "t.jinja")
    (tmp_path / "t.jinja").write_bytes(b"\xff\xfe")
    assert "cannot read the template" in refused(check, clean, "--template", tmp_path / "t.jinja")


def test_a_template_that_refuses_every_request(check, clean, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ raise_exception('never') }}")
    message = refused(check, clean, "--template", tmp_path / "t.jinja")
    assert "none of the 3 requests could be rendered" in message
    assert "never" in message


def test_a_model_that_is_none(check, clean, tmp_path):
    assert "is no directory" in refused(check, clean, "--model", tmp_path / "none")
    refused(check, clean, "--model", tmp_path)


def test_a_tokenizer_that_is_none(check, clean, tmp_path):
    refused(check, clean, "--tokenizer", clean)
    refused(check, clean, "--tokenizer", tmp_path)


@pytest.mark.parametrize(
    "options", [["--fail-under", "2"], ["--block-size", "0"], ["--engine", "steam"], ["--nothing"]]
)
def test_options_that_mean_nothing_exit_with_2(check, clean, options):
    assert check(clean, *options)[0] == 2


def test_a_log_beside_template_only(check, clean, tmp_path):
    assert "takes no log" in refused(check, clean, "--template-only", tmp_path)


# --- what it survives -------------------------------------------------------------------------


def run_with(environment, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "warmturn", "check", *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"COLUMNS": "40"},
        {"NO_COLOR": "1"},
        {"FORCE_COLOR": "1", "TERM": "dumb"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_every_terminal_gets_its_report(environment, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        "\n".join(rows("Uhrzeit 10:01 — grüß dich 中国", "Uhrzeit 10:02 — grüß dich 中国"))
    )
    result = run_with(environment, path)
    assert result.returncode == 1, result.stderr
    assert result.stderr == b""
    assert b"client.timestamp_in_system" in result.stdout.replace(b"\n", b"").replace(b" ", b"")


def test_a_message_of_a_megabyte_is_checked(check, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(rows("10:01 " + "long " * 200_000, "10:02 " + "long " * 200_000)))
    code, out, _ = check(path)
    assert code == 1
    assert len(out) < 10_000


def test_half_a_surrogate_pair_does_not_stop_any_report(check, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(rows("10:01 \ud800 x", "10:02 \ud800 x")))
    outputs = ["--json", tmp_path / "j", "--html", tmp_path / "h", "--junit", tmp_path / "x"]
    assert check(path, *outputs)[0] in {1, 2}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path):
    """20,000 requests of 10 kB are 200 MB of log; both have more than can still be continued."""
    script = (
        "import resource, sys\n"
        "from warmturn.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    peaks = []
    for num_conversations in (1300, 5000):
        path = tmp_path / "log.jsonl"
        with path.open("w") as file:
            for number in range(num_conversations):
                lines = rows(*["You are a clerk."] * 4, extra=f" {number} " + "word " * 1000)
                file.write("\n".join(lines).replace('"s"', f'"s{number}"') + "\n")
        result = subprocess.run(
            [sys.executable, "-c", script, "check", str(path), "--jobs", "1"],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        peaks.append(int(result.stderr.splitlines()[-1]) / 1024)
    assert peaks[1] - peaks[0] < 60, peaks
