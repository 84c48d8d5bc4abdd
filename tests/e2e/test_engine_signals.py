"""What is left of an engine that is told to stop: nothing, whatever it was doing."""

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.network]

ENDLESS = {"prompt": [1, 2, 3], "max_tokens": 4000, "ignore_eos": True}


class Running:
    """An engine in its own process, its output kept."""

    def __init__(self, folder, model_dir):
        self.folder, ready = folder, folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "warmturn", "engine", "--port", "0"]
        command += ["--model", str(model_dir), "--num-blocks", "256", "--json", str(ready)]
        command += ["--kv-events", f"ipc://{folder}/kv.sock"]
        command += ["--kv-events-replay", f"ipc://{folder}/replay.sock"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not (ready.exists() and ready.read_text().endswith("}\n")):
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.url = json.loads(ready.read_text())["url"]

    def stop(self, number):
        """Send the signal; return the exit code and what was said on standard error."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said

    def sockets(self):
        return sorted(path.name for path in self.folder.glob("*.sock"))

    def num_running(self):
        lines = httpx.get(self.url + "/metrics").text.splitlines()
        return sum(
            float(line.split()[-1])
            for line in lines
            if line.startswith("vllm:num_requests_running")
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_code_0_and_removes_its_socket_files(tmp_path, smollm_dir, number):
    """uvicorn alone raises the signal again, and the process dies before it has cleaned up."""
    engine = Running(tmp_path, smollm_dir)
    assert engine.sockets() == ["kv.sock", "replay.sock"]
    code, said = engine.stop(number)
    assert code == 0
    assert "Traceback" not in said
    assert engine.sockets() == []


def test_requests_in_flight_do_not_hold_it_up_for_long(tmp_path, smollm_dir):
    engine = Running(tmp_path, smollm_dir)

    def ask(stream):
        body = ENDLESS | {"stream": stream}
        return httpx.post(f"{engine.url}/v1/completions", json=body, timeout=60)

    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(ask, stream) for stream in (False, True)]
        while engine.num_running() < 2:
            time.sleep(0.02)
        code, said = engine.stop(signal.SIGTERM)
        whole, stream = (answer.result(timeout=5) for answer in answers)
    assert whole.status_code == 503
    assert "shutting down" in whole.json()["error"]["message"]
    assert "shutting down" in stream.text.strip().splitlines()[-1]
    assert "[DONE]" not in stream.text
    assert code == 0
    assert "Traceback" not in said
    assert engine.sockets() == []


def test_after_a_kill_the_same_paths_can_be_used_again(tmp_path, smollm_dir):
    Running(tmp_path, smollm_dir).stop(signal.SIGKILL)
    again = Running(tmp_path, smollm_dir)
    assert again.sockets() == ["kv.sock", "replay.sock"]
    assert again.stop(signal.SIGTERM)[0] == 0
    assert again.sockets() == []


def test_an_engine_started_for_a_measurement_does_not_outlive_it(smollm_dir):
    """Kill the one who measures; its engine notices that nobody holds the pipe any more."""
    script = (
        "import sys, time\n"
        "from warmturn.probe.local_engine import running_engine\n"
        "with running_engine('--model', sys.argv[1], '--num-blocks', '16') as facts:\n"
        "    print(facts['pid'], flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(smollm_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as measuring:
        engine = psutil.Process(int(measuring.stdout.readline()))
        measuring.kill()
    psutil.wait_procs([engine], timeout=20)
    assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE
