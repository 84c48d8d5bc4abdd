"""`warmturn serve` in a process of its own, and the official client for it."""

import json
import signal
import subprocess
import sys
import time

import httpx
import openai
import psutil

START_S = 240


class Serving:
    """A gateway process, what it said of itself, and clients of its ports."""

    def __init__(self, folder, *options):
        self.folder, ready = folder, folder / "ready.json"
        self.log_file = folder / "decisions.jsonl"
        command = [sys.executable, "-m", "warmturn", "serve", "--port", "0", "--admin-port", "0"]
        command += ["--stop-with-stdin", "--json", str(ready)]
        command += ["--decision-log", str(self.log_file), *options]
        with (folder / "said").open("w") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said)
        deadline = time.monotonic() + START_S
        while not (ready.exists() and ready.read_text().endswith("}\n")):
            assert self.process.poll() is None, self.words()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        self.facts = json.loads(ready.read_text())
        self.admin = httpx.Client(base_url=self.facts["admin_url"], timeout=30)
        self.model = self.facts["models"][0]

    def words(self):
        return (self.folder / "said").read_text()

    def client(self, tenant=None, session=None):
        headers = {"x-tenant": tenant, "x-session-id": session}
        return openai.OpenAI(
            base_url=f"{self.facts['url']}/v1",
            api_key="unused",
            max_retries=0,
            timeout=60,
            default_headers={name: value for name, value in headers.items() if value},
        )

    def ask(self, messages, tenant=None, session=None, **fields):
        with self.client(tenant, session) as client:
            answer = client.chat.completions.create(
                model=self.model, messages=messages, temperature=0, max_tokens=4, **fields
            )
            return list(answer) if fields.get("stream") else answer

    def engines(self):
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if "engine" in child.cmdline()]

    def replica_states(self):
        found = self.admin.get("/warmturn/replicas").json()["replicas"]
        return {one["name"]: one["state"] for one in found}

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        try:
            return self.process.wait(timeout=60)
        finally:
            self.admin.close()
            self.process.stdin.close()
