"""`warmturn demo-fleet` with a tiny model: real engines, real gateway, twice."""

import json
import subprocess
import sys

import pytest

from tests.support.tiny_model_dir import write_tiny_model

pytestmark = pytest.mark.slow


def test_kv_aware_routing_keeps_more_turns_and_prefills_less(tmp_path):
    write_tiny_model(tmp_path / "tiny", max_tokens=8192)
    command = [sys.executable, "-m", "warmturn", "demo-fleet", "--model", str(tmp_path / "tiny")]
    command += ["--sessions", "5", "--turns", "4", "--system-words", "60"]
    command += ["--user-words", "20", "--reply-tokens", "4"]
    command += ["--think-time-s", "0.2", "--num-blocks", "4096", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    baseline, aware = result["policies"]
    assert (baseline["policy"], aware["policy"]) == ("round_robin", "price")
    assert aware["kept_share"] > baseline["kept_share"]  # a move that pays is allowed
    assert aware["num_turns"] == baseline["num_turns"] == 20
    assert len(aware["requests_of"]) == 2
    assert aware["prefilled_tokens"] < baseline["prefilled_tokens"]
    assert "times fewer tokens" in done.stderr
