"""`warmturn demo-tiers` on a short conversation: an engine for each tier."""

import json
import shutil
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.network]


def demo(*options):
    command = [sys.executable, "-m", "warmturn", "demo-tiers", *options, "--json", "-"]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


def test_every_way_back_gives_the_same_reply():
    """Whether a tier beats recomputing says little at lengths this small: 1 is fine, too."""
    sizes = ("--system-tokens", "320", "--user-tokens", "40", "--reply-tokens", "20")
    done = demo("--turns", "3", *sizes)
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout)
    ways = {row["way"]: row for row in result["ways"]}
    assert [*ways] == ["pool", "recomputed", "host", "disk", "redis"]
    assert result["outputs_equal"] is True
    assert {row["prompt_tokens"] for row in ways.values() if "ttft_s" in row} == {480}
    assert ways["recomputed"]["tokens_by_source"] == {}
    assert ways["pool"]["cached_tokens"] == (420 + 20 - 1) // 16 * 16
    if shutil.which("redis-server") is None:
        assert "redis-server" in ways["redis"]["note"]
    for way in ("host", "disk"):
        assert set(ways[way]["tokens_by_source"]) <= {way}, "nothing was left in the pool"
    assert ways["host"]["cached_tokens"] > 0


def test_a_url_that_no_store_has_is_refused_before_anything_starts():
    done = demo("--redis", "ftp://somewhere")
    assert done.returncode == 2
    assert "scheme 'ftp' is not known" in done.stderr
    assert "Traceback" not in done.stderr
