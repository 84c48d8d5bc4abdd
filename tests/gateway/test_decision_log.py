import numpy as np
import pytest

from tests.support.calls import call, chat, complete, drive, usage
from tests.support.tiny_fleet import source
from warmturn.errors import InvalidInput
from warmturn.gateway import decision_log
from warmturn.gateway.decision_log import DecisionLogFile
from warmturn.gateway.replica_spec import ReplicaSpec
from warmturn.gateway.steering import GatewaySteering
from warmturn.router import Affinity, TurnEnd, read_decision_log, replay
from warmturn.types import ReplicaId


def steering(*observers):
    one = GatewaySteering(Affinity(), observers=observers)
    for name in ("a", "b"):
        one.add_replica(ReplicaSpec(ReplicaId(name)), 0.0)
        one.set_alive(ReplicaId(name), True, "test", 0.0)
    return one


def logged(path):
    return list(read_decision_log(path.read_bytes().splitlines()))


def log_file(path, **options):
    defaults = {"max_bytes": 10**6, "num_files": 2, "unix_offset_s": 1000.0}
    return DecisionLogFile(path, **defaults | options)


def play(log, num, *, start=0.0):
    one = steering(log)
    for number in range(num):
        outcome = complete(usage=usage(prompt=50, cached=16))
        drive(one, call(x_session_id=f"s{number % 3}"), now=start + number, outcome=outcome)


def test_decisions_and_ends_are_written_with_unix_times(tmp_path):
    log = log_file(tmp_path / "log")
    play(log, 3, start=5.0)
    log.close()
    entries = logged(tmp_path / "log")
    records = [entry[0] for entry in entries if isinstance(entry, tuple)]
    assert [record.at_s for record in records] == [1005.0, 1006.0, 1007.0]
    assert replay(records, None).reproduces
    ends = [entry for entry in entries if isinstance(entry, TurnEnd)]
    assert ends[2] == TurnEnd(2, 50, 16, 10, pytest.approx(0.25))


def test_files_are_rotated_by_size_and_the_oldest_leaves(tmp_path):
    log = log_file(tmp_path / "log", max_bytes=4096, num_files=2)
    for _ in range(6):
        play(log, 20)
        log.flush()
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        logged(path)
    assert sum(isinstance(e, tuple) for e in logged(tmp_path / "log.1")) > 0


def test_a_log_of_an_earlier_run_is_kept(tmp_path):
    first = log_file(tmp_path / "log")
    play(first, 2)
    first.close()
    log_file(tmp_path / "log").close()
    assert len(logged(tmp_path / "log.1")) == 4
    assert logged(tmp_path / "log") == []


def test_prompts_tenants_and_salts_are_not_in_it(tmp_path):
    log = log_file(tmp_path / "log")
    drive(steering(log), call(chat("a secret question"), authorization="Bearer key"), now=1.0)
    log.close()
    text = (tmp_path / "log").read_text()
    assert "secret" not in text
    assert "key" not in text


def test_a_full_disk_loses_lines_and_nothing_else(tmp_path, caplog):
    (tmp_path / "folder").mkdir()
    log = log_file(tmp_path / "folder" / "log")

    class Full:
        def write(self, _lines):
            raise OSError(28, "No space left on device")

        def truncate(self, _size):
            pass

        def close(self):
            pass

    log._stream.close()
    log._stream = Full()
    play(log, 2)
    log.flush()
    assert log.num_lost == 6  # two sources, two decisions, two ends
    assert "No space left" in caplog.text
    play(log, 2)
    log.close()
    assert len(logged(tmp_path / "folder" / "log")) == 4


def test_a_line_cut_by_a_full_disk_is_taken_back(tmp_path):
    log = log_file(tmp_path / "log")
    play(log, 1)
    log.flush()
    stream = log._stream
    log._stream = Short(stream)
    play(log, 1)
    log.flush()
    log.close()
    assert log.num_lost == 2
    assert len(logged(tmp_path / "log")) == 2


class Short:
    """Takes half of what it is given."""

    def __init__(self, stream):
        self.stream = stream

    def write(self, lines):
        return self.stream.write(lines[: len(lines) // 2])

    def __getattr__(self, name):
        return getattr(self.stream, name)


def test_a_queue_nobody_empties_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(decision_log, "MAX_QUEUED", 5)
    log = log_file(tmp_path / "log")
    play(log, 4)
    assert log.num_lost == 3
    log.close()
    assert len(logged(tmp_path / "log")) == 5


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(InvalidInput, match=r"decision_log\.file"):
        log_file(tmp_path / "none" / "log")


def test_the_blocks_of_a_prompt_are_keyed(tmp_path):
    log = log_file(tmp_path / "log")
    one = steering()
    turn = one.admit(call(), 0.0)
    one.place(turn, 0.0)
    turn.chain = np.array([1, 2, 3], np.uint64)
    log.placed(turn, 0.0)
    log.close()
    content = logged(tmp_path / "log")[0][1]
    assert len(content.blocks) == 3
    assert content.blocks[0] != np.uint64(1).tobytes()
    assert source("a")
