"""The command as a newcomer and as an attacker would call it."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from warmturn.cli import main
from warmturn.cli.sizes import bytes_of
from warmturn.errors import InvalidInput

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "plan.md"


@pytest.fixture
def plan(monkeypatch, capsys):
    """Run `warmturn plan ARGS` in process; return exit code, standard output and error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["warmturn", "plan", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return ended.value.code, re.sub(r"\s+", " ", out), err

    return run


def test_without_options_it_prints_the_worked_example(plan):
    code, out, _ = plan("llama-3.1-8b")
    assert code == 0
    for figure in (
        "131,072 bytes (128 KiB) = 2 x 32 layers x 8 KV heads x 128 x 2",
        "6,150 tokens: 768.8 MiB",
        "39,000 tokens; grows with the square of the turns",
        "3,000 tokens; grows linearly: 13.0 times less",
        "327,680 tokens: 53 conversations of 6,150",
        "(327,680 - 120,000 running) / 6,000 new tokens per second = 35 s",
        "7 of 8 later turns miss over 8 replicas (87.5%)",
        "750 MiB in 31 ms",
        "9.6e+13 operations at 400 TFLOP/s: 241 ms; with attention (9.4e+12 more) 264 ms",
    ):
        assert figure in out


def test_json_has_the_keys_of_the_reference_and_only_numbers_json_knows(plan, capsys, tmp_path):
    target = tmp_path / "plan.json"
    plan("llama-3.1-8b", "--tenants", 3, "--gpu", "80GB", "--rate", 0, "--json", target)
    result = json.loads(target.read_text(), parse_constant=pytest.fail)
    assert result["horizon_s"] is None, "nothing enters, nothing is evicted"
    assert result["kv_bytes_per_token"] == 131_072
    assert result["tenants"]["salted_tokens"] == 3 * 1488
    documented = set(re.findall(r"^\| `(\w+)`", REFERENCE.read_text(), re.MULTILINE))
    assert documented == set(result)


def test_json_to_standard_output_is_nothing_but_json(plan):
    _, out, _ = plan("qwen3-8b", "--json", "-")
    assert json.loads(out)["model"] == "qwen3-8b"


def test_a_gpu_is_split_between_running_requests_and_idle_conversations(plan):
    _, out, _ = plan("llama-3.1-8b", "--gpu", "80GB")
    assert "1 GPU of 74.5 GiB: 15 GiB weights, 2 GiB activations, 50.1 GiB pool each" in out
    assert "50 % running decode batch of 33, horizon 35 s, 33 idle conversations" in out


def test_tenants_pay_for_their_own_system_prompt(plan):
    _, out, _ = plan("llama-3.1-8b", "--tenants", 50)
    assert "50 times instead of once: 74,400 tokens, 9.1 GiB" in out
    assert "22 s instead of 34 s" in out


def test_a_tier_is_sized_for_the_target(plan):
    _, out, _ = plan("llama-3.1-8b", "--think-median", 20, "--think-p90", 120)
    assert "65% of later turns" in out
    assert "for 90% in time 120 s: 512,320 tokens below the pool (62.5 GiB)" in out
    _, out, _ = plan("llama-3.1-8b", "--target", 0.5)
    assert "the pool is enough" in out


def test_a_plot_is_an_svg_with_both_curves(plan, tmp_path):
    target = tmp_path / "plan.svg"
    plan("llama-3.1-8b", "--plot", target)
    picture = ET.fromstring(target.read_text())
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"without reuse", "with reuse"} <= set(texts)


def test_known_models_are_listed_with_their_bytes(plan):
    _, out, _ = plan("--list")
    assert "llama-3.1-8b 131,072 bytes per token https://" in out


def test_parallel_ranks_and_recurrent_layers_are_shown(plan):
    _, out, _ = plan("deepseek-v3", "--tp", 8)
    assert "70,272 bytes on each of 8; each token lies there 8 times" in out
    _, out, _ = plan("qwen3-next-80b-a3b")
    assert "73.7 MiB in recurrent layers" in out
    _, out, _ = plan("gpt-oss-120b")
    assert "4.5 MiB in window layers once they are full; 73,728 bytes per token until then" in out


def test_without_parameters_the_rest_is_still_said(plan, tmp_path):
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    code, out, _ = plan(path)
    assert code == 0
    assert "--parameters" in out
    assert "512 bytes" in out
    code, _, err = plan(path, "--gpu", "80GB")
    assert code == 2
    assert "--weights" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no model was named"),
        (("nonsense",), "no model is called 'nonsense'"),
        (("llama-3.1-8b", "--kv-dtype", "q3"), "K/V dtype 'q3' is not known"),
        (("llama-3.1-8b", "--pool", "lots"), "--pool 'lots' is no size"),
        (("llama-3.1-8b", "--tp", "2", "--dp-attention", "3"), "do not divide"),
        (("llama-3.1-8b", "--target", "1.5"), "a target of 1.5"),
        (("llama-3.1-8b", "--think-p90", "1"), "the second larger"),
        (("llama-3.1-405b", "--gpu", "80GB"), "leave nothing of"),
        (("llama-3.1-8b", "--json", "/no/such/place.json"), "is not a directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(plan, arguments, words):
    code, out, err = plan(*arguments)
    assert code == 2
    assert words in err
    assert out == ""


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("40GiB", 40 * 2**30), ("25 GB/s", 25 * 10**9), ("1.5kib", 1536), ("7", 7)],
)
def test_sizes_are_read_as_written(text, num_bytes):
    assert bytes_of(text, option="--pool") == num_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1e9", "1XB", "9" * 30 + "PB", "nan"])
def test_what_is_no_size_is_named_with_its_option(text):
    with pytest.raises(InvalidInput, match="--pool"):
        bytes_of(text, option="--pool")
