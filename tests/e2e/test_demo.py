"""`warmturn demo` as a user runs it, on a small shape."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.network]

SMALL = ["--turns", "4", "--system-tokens", "120", "--user-tokens", "40", "--reply-tokens", "20"]


def demo(*options):
    command = [sys.executable, "-m", "warmturn", "demo", *options, "--json", "-"]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_small_demo_holds_its_bounds(dtype):
    run = demo(*SMALL, "--dtype", dtype)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    prompts = [160, 220, 280, 340]
    assert [turn["prompt_tokens"] for turn in result["turns"]] == prompts
    assert result["total_prefilled_tokens_without_reuse"] == sum(prompts)
    assert result["bound_prefilled_tokens"] == 160 + 3 * 40
    assert 280 <= result["total_prefilled_tokens"] <= 280 + 3 * 16
    assert result["outputs_equal"] is True
    # A turn leaves prompt + reply - 1 computed tokens, of which full blocks of 16 are hits.
    known = [0, *[tokens + 20 - 1 for tokens in prompts[:-1]]]
    assert [turn["cached_tokens"] for turn in result["turns"]] == [n // 16 * 16 for n in known]
    assert "TTFT of the last turn" in run.stderr


def test_a_shape_that_cannot_be_is_refused():
    run = demo("--system-tokens", "2")
    assert run.returncode == 2
    assert "--system-tokens" in run.stderr.strip().splitlines()[-1]
    assert "Traceback" not in run.stderr


def test_a_conversation_longer_than_the_model_is_refused():
    run = demo("--turns", "40", "--reply-tokens", "400")
    assert run.returncode == 2
    assert "8192" in run.stderr.replace(",", "")
    assert "Traceback" not in run.stderr
