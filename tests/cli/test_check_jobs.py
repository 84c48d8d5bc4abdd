"""One log, several processes: the same answer."""

import gc
import json
import os
import random
import sys

import pytest

from benchmarks.planted_log import TEMPLATE, as_response, planted_log
from tests.support.logged import template
from tests.support.tiny_renderer import TinyTokenizer
from warmturn.check import Settings
from warmturn.cli.check_inputs import LogSource, Rendering
from warmturn.cli.check_jobs import check_log
from warmturn.cli.check_run import Shard, _num_others_running, num_shards
from warmturn.errors import InvalidInput, PeerError

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a fork that is used"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


def source(*paths, **fields):
    given = {"format_name": None, "is_strict": False} | fields
    return LogSource(paths=tuple(map(str, paths)), **given)


def rendering(text=TEMPLATE):
    return Rendering(template(text), TinyTokenizer(), "rendered with a test's template")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Every cause in two conversations, some requests without an id, a bad line, one of ids alone."""
    rows = [as_response(row) for row in planted_log(seed=3, num_conversations=40, num_turns=4).rows]
    for row in rows:
        if row["conversation_id"].endswith("7"):
            del row["conversation_id"]
    lines = [json.dumps(row) for row in rows]
    lines.insert(20, "{broken")
    lines.insert(30, json.dumps({"prompt": list(range(40)), "session_id": "ids"}))
    path = tmp_path_factory.mktemp("planted") / "log.jsonl"
    path.write_text("\n".join(lines))
    return path


def whole(path, jobs, **settings):
    report, bad = check_log(source(path), rendering(), Settings(**settings), jobs=jobs)
    return report.as_dict() | {"bad": [repr(line) for line in bad.kept], "num_bad": bad.num_lines}


@pytest.mark.parametrize("jobs", [2, 3])
def test_several_processes_say_what_one_says(planted, jobs):
    one = whole(planted, 1)
    assert one["num_breaks"] > 40
    assert one["num_bad"] == 1
    assert json.dumps(whole(planted, jobs)) == json.dumps(one)


def test_so_they_do_where_proofs_run_out(planted, monkeypatch):
    monkeypatch.setattr("warmturn.check.summary._MOST_PROOFS_PER_CAUSE", 2)
    one = whole(planted, 1)
    assert json.dumps(whole(planted, 2)) == json.dumps(one)
    turns = [turn for c in one["conversations"] for turn in c["turns"]]
    clocks = [turn for turn in turns if turn["cause"] == "client.timestamp_in_system"]
    assert len([turn for turn in clocks if turn["fixes"]]) == 2 < len(clocks)


def test_so_they_do_where_much_is_forgotten(planted):
    settings = {"most_open_requests": 2, "prefill_tokens_per_s": 1000.0}
    one = whole(planted, 1, **settings)
    assert len(one["conversations"]) > len(whole(planted, 1)["conversations"])
    assert json.dumps(whole(planted, 2, **settings)) == json.dumps(one)


def test_a_shard_has_whole_conversations_and_requests_without_an_id_stay_together():
    shards = [Shard(index, 3) for index in range(3)]
    for number in range(30):
        assert sum(shard.has(f"c\ud800{number}", 1) for shard in shards) == 1
    assert sum(shard.has(None, 1) for shard in shards) == 1
    assert sum(shard.has("", 1) for shard in shards) == 1
    assert Shard().has(None, 1)


def test_conversations_are_divided_by_their_size():
    shards = [Shard(index, 2) for index in range(2)]
    sizes = random.Random(1).choices([1, 5, 30], k=200)
    had = [sum(n for i, n in enumerate(sizes) if shard.has(f"c{i}", n)) for shard in shards]
    assert sum(had) == sum(sizes)
    assert abs(had[0] - had[1]) <= 30


def test_what_stops_a_process_stops_all_with_its_words(planted):
    strict = source(planted, is_strict=True)
    with pytest.raises(InvalidInput, match="not valid JSON"):
        check_log(strict, rendering(), Settings(), jobs=2)


def test_a_process_that_dies_is_an_error(planted, monkeypatch):
    monkeypatch.setattr(Shard, "has", lambda *_asked: os._exit(9))
    with pytest.raises(PeerError, match="--jobs 1"):
        check_log(source(planted), rendering(), Settings(), jobs=2)


def test_a_small_log_is_for_one_process_unless_told(planted):
    assert num_shards(source(planted), None) == 1
    assert num_shards(source(planted), 5) == 5


def test_a_large_log_is_for_all_cores_if_it_has_ids(planted, tmp_path, monkeypatch):
    monkeypatch.setattr("warmturn.cli.check_run._LARGE_BYTES", 1000)
    monkeypatch.setattr("warmturn.cli.check_run._num_cores", lambda: 4)
    monkeypatch.setattr("warmturn.cli.check_run._num_others_running", lambda: 3)
    assert num_shards(source(planted), None) == 4
    monkeypatch.setattr("warmturn.cli.check_run._num_others_running", lambda: 4)
    assert num_shards(source(planted), None) == 1
    assert num_shards(source(planted), 2) == 2
    monkeypatch.setattr("warmturn.cli.check_run._num_others_running", lambda: 0)
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([json.dumps({"messages": [{"role": "user", "content": "Hi"}]})] * 99))
    assert num_shards(source(path), None) == 1


def test_standard_input_can_be_read_only_once():
    assert num_shards(source("-"), 4) == 1


def test_where_fork_is_not_used_there_is_one_process(planted, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert num_shards(source(planted), 4) == 1


def test_garbage_is_collected_as_usual_afterwards(planted):
    usual = gc.get_threshold()
    whole(planted, 1)
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() == 0


def test_those_that_run_are_counted_without_this_process():
    assert 0 <= _num_others_running() < 100_000
