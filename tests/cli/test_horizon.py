"""`warmturn horizon` and `warmturn thinktime` as a newcomer and as an attacker would call them."""

import http.server
import json
import os
import re
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from warmturn.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "thinktime.jsonl"
REFERENCE = (ROOT / "docs" / "reference" / "horizon.md").read_text()


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `warmturn ARGS` in process; return exit code, standard output and error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["warmturn", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "160")
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return ended.value.code, re.sub(r"[ \t]+", " ", out), err

    return run


def page(number, *, usage=0.25):
    """250 new tokens per page, 300 found, into a pool of 1,000."""
    return (
        f"vllm:prefix_cache_queries_total {500 * number}\n"
        f"vllm:prefix_cache_hits_total {300 * number}\n"
        f"vllm:generation_tokens_total {50 * number}\n"
        f"vllm:kv_cache_usage_perc {usage}\n"
        'vllm:cache_config_info{block_size="10",num_gpu_blocks="100"} 1\n'
    )


@pytest.fixture
def saved(tmp_path):
    paths = []
    for number in range(6):
        path = tmp_path / f"{number}.txt"
        path.write_text(page(number))
        os.utime(path, (1000 + 10 * number, 1000 + 10 * number))
        paths.append(path)
    return paths


def documented(section):
    body = REFERENCE.split(f"## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", body, re.MULTILINE))


# --- horizon ----------------------------------------------------------------------------------


def test_saved_pages_give_the_horizon_by_their_files_times(command, saved):
    code, out, _ = command("horizon", *saved)
    assert code == 0
    assert "horizon 30 s steady load" in out
    assert "new tokens per second 25.0 = 20.0 missed + 5.0 generated, over 50 s" in out
    assert "between 13.6 and 30 s" in out


def test_an_interval_stands_in_for_the_files_times(command, saved):
    _, out, _ = command("horizon", *saved, "--interval", 20)
    assert "horizon 60 s" in out


def test_think_times_correct_for_hits_and_answer_what_if(command, saved):
    users = ("--think-median", 5, "--think-p90", 15)
    _, out, _ = command("horizon", *saved, *users, "--what-if", 2000, "--host-tokens", 1000)
    assert "idle that will be found again" in out
    assert "with 2,000 tokens" in out
    assert "in the tier below 40 s more" in out


def test_json_has_the_keys_of_the_reference(command, saved, tmp_path):
    target = tmp_path / "h.json"
    users = ("--think-median", 5, "--think-p90", 15)
    command("horizon", *saved, *users, "--what-if", 2000, "--json", target)
    result = json.loads(target.read_text(), parse_constant=pytest.fail)
    assert documented("From metrics") == set(result)
    assert result["what_if"][0]["pool_tokens"] == 2000
    command("horizon", EXAMPLE, "--json", target)
    assert documented("From a log") == set(json.loads(target.read_text()))


def test_a_server_is_polled(command):
    served = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            served.append(self.path)
            body = page(len(served)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        code, out, _ = command("horizon", url, "--interval", 0.1, "--duration", 0.5)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert code == 0
    assert served == ["/metrics"] * 6
    # Some 250 tokens per 0.1 s into 750 idle ones: the machine's own delays count.
    assert 0.2 < float(re.search(r"horizon ([\d.]+) s", out)[1]) < 0.6


def test_a_log_gives_rates_and_a_bracket(command):
    """The example was made with a horizon of 36 s, give or take 7 percent."""
    code, out, _ = command("horizon", EXAMPLE, "--pool-tokens", 40_000)
    assert code == 0
    low, high = map(float, re.search(r"between ([\d.]+) s and ([\d.]+) s", out).groups())
    assert 30 <= low <= 39
    assert low < high <= 60
    assert "313 requests" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("http://127.0.0.1:9/v1", "--duration", "1", "--interval", "1"), "got no answer"),
        (("/no/such/file",), "cannot read /no/such/file"),
        (("{page}",), "a rate needs two"),
        (("{page}", "{page}"), "not in order of time"),
        (("{page}", "http://127.0.0.1:9"), "polled by itself"),
        (("{page}", "{later}", "--what-if", "5"), "--think-median"),
        (("{page}", "{later}", "--think-median", "5"), "give both"),
        (("{empty}",), "empty"),
        (("{html}",), "format"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(command, saved, tmp_path, arguments, words):
    (tmp_path / "empty").write_text("")
    (tmp_path / "html").write_text("<html></html>")
    named = {"page": saved[0], "later": saved[1]}
    named |= {name: tmp_path / name for name in ("empty", "html")}
    code, out, err = command("horizon", *(a.format(**named) for a in arguments))
    assert code == 2
    assert words in err
    assert out == ""


# --- thinktime --------------------------------------------------------------------------------


def test_the_example_shows_who_comes_back_too_late(command):
    code, out, _ = command("thinktime", EXAMPLE, "--horizon", 35, "--prefill-rate", 8000)
    assert code == 0
    assert "313 answers in 48 conversations" in out
    assert re.search(r"^end_turn 248 .* 28%$", out, re.MULTILINE)
    assert re.search(r"^tool_use 65 .* 0%$", out, re.MULTILINE)
    assert "21.2% of later turns come too late: 753 tokens per later turn, 0.09 s" in out
    assert re.search(r"horizon between 3\d s and \d\d s", out)


def test_a_pool_is_sized_for_the_target(command):
    _, out, _ = command("thinktime", EXAMPLE, "--rate", 300, "--pool-tokens", 10_000)
    assert "for 90% in time 58 s: 17,435 tokens in all, 7,435 more than the pool" in out


def test_thinktime_json_has_the_keys_of_the_reference(command, tmp_path):
    target = tmp_path / "t.json"
    command("thinktime", EXAMPLE, "--horizon", 35, "--json", target)
    result = json.loads(target.read_text(), parse_constant=pytest.fail)
    assert documented("thinktime") == set(result)
    assert result["overall"]["exposure"]["miss_share"] == pytest.approx(0.212, abs=0.001)


def test_both_curves_are_drawn_on_one_axis(command, tmp_path):
    target = tmp_path / "t.svg"
    command("thinktime", EXAMPLE, "--horizon", 35, "--plot", target)
    picture = ET.fromstring(target.read_text())
    texts = {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"turns back by then", "blocks still there", "horizon 35 s"} <= texts


def test_a_log_without_ends_is_measured_from_starts_and_says_so(command):
    _, out, _ = command("thinktime", ROOT / "examples" / "clock.jsonl")
    assert "14 times are from start to start" in out


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('{"messages": [{"role": "user", "content": "Hi"}]}\n', "has a time"),
        (
            '{"timestamp": 5, "messages": [{"role": "user", "content": "Hi"}]}\n',
            "no conversation with a second turn",
        ),
        ("", "has a time"),
    ],
)
def test_a_log_that_tells_nothing_is_named(command, tmp_path, lines, words):
    log = tmp_path / "log.jsonl"
    log.write_text(lines)
    code, out, err = command("thinktime", log)
    assert code == 2
    assert words in err
    assert out == ""
