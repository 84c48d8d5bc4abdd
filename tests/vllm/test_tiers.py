"""Our tiers inside vLLM: evicted and back, restarted and back, shared, and never wrong bytes."""

import json
import os
import random
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.vllm import servers
from tests.vllm.conversations import token_ids
from warmturn.integrations import ServeUse, TierUse, serve_command

BLOCK = 32
BLOCK_BYTES = 30 * 3 * 64 * 2 * 4 * BLOCK
"""SmolLM2-135M in float32."""
NUM_BLOCKS = 37  # of the pool; one is the null block
HOST_BLOCKS, DISK_BLOCKS = 40, 160


class SharedStore:
    """A Redis server of our own where there is one, else a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._redis: subprocess.Popen[bytes] | None = None
        program = shutil.which("redis-server")
        if program is None:
            self.url = f"file://{folder}"
            return
        port = servers.free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self._redis = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        self.url = f"redis://127.0.0.1:{port}"

    def empty(self) -> None:
        if self._redis is not None:
            import redis

            redis.Redis.from_url(self.url).flushall()
            return
        for child in self._folder.iterdir():
            shutil.rmtree(child)

    def close(self) -> None:
        if self._redis is not None:
            self._redis.terminate()
            self._redis.wait(10)


def with_settings(tiers: TierUse, **settings) -> tuple[str, str]:
    """Return the option for `tiers` with more in it: the machine may be too busy for 0.1 s."""
    words = serve_command(ServeUse(model="m", tiers=tiers)).arguments
    option = words.index("--kv-transfer-config")
    config = json.loads(words[option + 1])
    config["kv_connector_extra_config"] |= settings
    return words[option], json.dumps(config)


@dataclass
class Replica:
    """A server with tiers, which can be started again on what it left."""

    environment: Path
    model: Path
    folder: Path
    core: int
    shared: SharedStore
    verifies: bool
    server: servers.Server | None = None

    def start(self) -> None:
        tiers = TierUse(
            host=str(HOST_BLOCKS * BLOCK_BYTES),
            disk=f"{self.folder}/disk:{(DISK_BLOCKS + 1) * BLOCK_BYTES}",
            shared=self.shared.url,
        )
        self.server = servers.start(
            self.environment,
            self.model,
            self.folder,
            core=self.core,
            num_blocks=NUM_BLOCKS,
            tiers=tiers,
            options=with_settings(tiers, lookup_timeout_s=5, verify=self.verifies),
        )

    def ask(self, ids, salt, max_tokens=16):
        """Return generated ids and how many tokens of the prompt were cached."""
        answer = self.server.post(
            "/v1/completions", prompt=ids, max_tokens=max_tokens, return_token_ids=True,
            cache_salt=salt,
        )  # fmt: skip
        details = answer["usage"]["prompt_tokens_details"]
        return answer["choices"][0]["token_ids"], details["cached_tokens"]

    def evict(self, seed):
        """Fill pool and host with something else, so that only lower tiers have the rest."""
        rng = random.Random(seed)
        for _ in range(2):
            self.ask(token_ids(rng, 900), f"evict-{seed}", max_tokens=1)

    def counter(self, name, **labels):
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in self.server.metrics().splitlines()
            if line.startswith(name) and all(label in line for label in wanted)
        )

    @property
    def complaints(self) -> list[str]:
        """What our tiers wrote into the server's log."""
        return [line for line in self.server.log.splitlines() if "tier:" in line]

    @property
    def slab(self) -> Path:
        return self.folder / "disk" / "blocks.slab"

    def spoil_disk(self):
        """Write other bytes over every block; the journal still says that all is well."""
        with self.slab.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            for offset in range(4096, size, BLOCK_BYTES):
                file.seek(offset)
                file.write(bytes(BLOCK_BYTES // 2))


@pytest.fixture(scope="module")
def replicas(environment, model):
    """Two replicas, each with a disk of its own, and one shared store; the second checks nothing."""
    root = Path(tempfile.mkdtemp(prefix="wt"))
    (root / "shared").mkdir()
    shared = SharedStore(root / "shared")
    made = []
    for number in range(2):
        folder = root / str(number)
        folder.mkdir()
        core = number % (os.cpu_count() or 1)
        made.append(Replica(environment, model, folder, core, shared, number == 0))
    try:
        for replica in made:
            replica.start()
        for replica in made:
            servers.wait_until_ready(replica.server)
        yield made
    finally:
        for replica in made:
            if replica.server is not None:
                replica.server.stop()
        shared.close()
        shutil.rmtree(root)


@pytest.fixture
def checked(replicas):
    return replicas[0]


@pytest.fixture
def careless(replicas):
    return replicas[1]


def test_a_conversation_that_was_evicted_comes_back_with_its_reply(checked):
    ids = token_ids(random.Random(1), 372)
    reply, cached = checked.ask(ids, "back")
    assert cached == 0
    checked.evict(1)
    again, cached = checked.ask(ids, "back")
    assert (again, cached) == (reply, 352)  # 11 of 11 full blocks
    checked.evict(2)
    _, cached = checked.ask([*ids, *reply, *token_ids(random.Random(2), 20)], "back")
    assert cached == 384  # the twelfth holds generated tokens


def test_another_salt_gets_nothing(checked):
    ids = token_ids(random.Random(3), 372)
    reply, _ = checked.ask(ids, "mine")
    checked.evict(3)
    other, cached = checked.ask(ids, "yours")
    assert (other, cached) == (reply, 0)


def test_what_one_replica_computed_another_one_loads(checked, careless):
    ids = token_ids(random.Random(4), 372)
    reply, _ = checked.ask(ids, "shared")
    checked.evict(4)  # its writes are done by then
    other, cached = careless.ask(ids, "shared")
    assert (other, cached) == (reply, 352), checked.complaints + careless.complaints


def test_spoiled_bytes_are_never_served(checked):
    ids = token_ids(random.Random(5), 372)
    reply, _ = checked.ask(ids, "spoiled")
    checked.evict(5)
    checked.shared.empty()
    checked.spoil_disk()
    again, cached = checked.ask(ids, "spoiled")
    assert (again, cached) == (reply, 0)
    assert checked.counter("vllm:kv_offload_tiering_promotion_job_failures_total") > 0


def test_spoiled_bytes_would_change_the_answer(careless):
    """The control of the test before: the same, by a replica that checks nothing."""
    ids = token_ids(random.Random(6), 372)
    reply, _ = careless.ask(ids, "careless")
    careless.evict(6)
    careless.spoil_disk()
    again, cached = careless.ask(ids, "careless")
    assert cached == 352
    assert again != reply


def test_conversations_at_once_get_the_answers_they_would_get_alone(checked):
    """Four prompts of which the pool holds three: somebody waits for room, all are right."""
    rng = random.Random(7)
    prompts = [token_ids(rng, 320) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        first = list(threads.map(lambda ids: checked.ask(ids, "crowd")[0], prompts))
    checked.evict(7)
    with ThreadPoolExecutor(4) as threads:
        second = list(threads.map(lambda ids: checked.ask(ids, "crowd"), prompts))
    assert [reply for reply, _ in second] == first
    assert sum(cached for _, cached in second) > 0
    alone = [checked.ask(ids, "alone")[0] for ids in prompts]
    assert alone == first


def test_what_a_replica_wrote_is_there_after_a_restart(checked):
    ids = token_ids(random.Random(8), 372)
    reply, _ = checked.ask(ids, "restart")
    checked.evict(8)
    checked.server.stop()
    checked.shared.empty()  # only the disk has it
    checked.start()
    servers.wait_until_ready(checked.server)
    again, cached = checked.ask(ids, "restart")
    assert (again, cached) == (reply, 352)
    assert checked.counter("vllm:prompt_tokens_cached_by_source_total", source="disk") == 352
