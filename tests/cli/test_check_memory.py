"""Memory does not grow with the log, whatever is written."""

import gc
import json
import tracemalloc

from tests.support.logged import assistant, system, user
from warmturn.check import Settings
from warmturn.check.generic import generic_template
from warmturn.cli.check_files import Outputs, check_files
from warmturn.cli.check_inputs import LogSource, Rendering

BYTES_PER_CONVERSATION = 1500
"""The count of its threads, its places in files, and garbage; three kept turns would be 6,000."""


def write_log(path, num_conversations):
    """Write conversations of three turns, each with a clock; all say the same."""
    with path.open("w") as file:
        for number in range(num_conversations):
            messages = []
            for turn in range(3):
                messages.append(user(f"question {turn}"))
                orders = system(f"It is 10:0{turn}. You are a clerk. " + "Be brief. " * 20)
                row = {"session_id": f"c{number}", "messages": [orders, *messages]}
                file.write(json.dumps(row) + "\n")
                messages.append(assistant(f"answer {turn}"))


def peak_bytes(path, folder):
    """Return the most that was held at a time while the log was checked and all was written."""
    source = LogSource(paths=(str(path),), format_name=None, is_strict=True)
    outputs = Outputs(*(str(folder / name) for name in ("r.json", "r.html", "r.xml")))
    rendering = Rendering(generic_template(), None, "rendered with our own template")
    gc.collect()
    tracemalloc.start()
    code = check_files(
        source, rendering, Settings(most_open_requests=32), "paged", None, outputs, jobs=1
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert code == 1
    return peak


def test_memory_does_not_grow_with_the_log_though_all_reports_are_written(tmp_path, capsys):
    peaks, sizes = [], [100, 100, 400]
    for size in sizes:  # the first fills what is kept from run to run
        write_log(tmp_path / "log.jsonl", size)
        peaks.append(peak_bytes(tmp_path / "log.jsonl", tmp_path))
    grown = (peaks[2] - peaks[1]) / (sizes[2] - sizes[1])
    assert grown < BYTES_PER_CONVERSATION, peaks
    written = json.loads((tmp_path / "r.json").read_text())
    assert len(written["conversations"]) == sizes[-1]
    assert written["num_breaks"] == 2 * sizes[-1]
    assert "400 conversations" in capsys.readouterr().out
