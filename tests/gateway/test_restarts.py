"""Ten thousand requests while a replica is killed and started again."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import upstream_process
from tests.support.gateway_wire import FakeSteering, request
from warmturn.fleet import SourceId
from warmturn.gateway.data_path import DataPath
from warmturn.gateway.turns import Ending
from warmturn.gateway.upstream import UpstreamAddress
from warmturn.gateway.upstream_pool import UpstreamPool
from warmturn.types import ReplicaId

NUM_CLIENTS = 16


class Upstream:
    """One replica's process."""

    def __init__(self, log):
        self.log, self.port, self.process = log, 0, None

    def start(self):
        command = [sys.executable, upstream_process.__file__, str(self.port), str(self.log)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


async def client(port, numbers, results):
    """Send requests over one connection, each when the last one is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in numbers:
        is_stream = number % 2 == 0
        body = {"model": "m", "nonce": number, "stream": is_stream, "pad": "x" * 100}
        writer.write(request(body))
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        if b"chunked" in head:
            data = b""
            while (size := int(await reader.readuntil(b"\r\n"), 16)) > 0:
                data += await reader.readexactly(size)
                await reader.readexactly(2)
            await reader.readexactly(2)
            nonce = json.loads(data.split(b"\n")[0][6:])["nonce"]
            results[number].append((status, nonce, data.endswith(b"[DONE]\n\n")))
        else:
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r")[0])
            data = json.loads(await reader.readexactly(length))
            results[number].append((status, data.get("nonce"), True))
    # Nothing but answers to what was asked came over the connection.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            assert await reader.read(1) == b""
    writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("run", ["uvloop"], indirect=True)
def test_no_request_is_lost_when_a_replica_is_killed_and_restarted(run, tmp_path):
    upstreams = [Upstream(tmp_path / f"log{n}").start() for n in range(3)]
    names = [ReplicaId(f"r{n}") for n in range(3)]
    num_requests = 10_000

    async def scenario():
        steering = FakeSteering(sources=[SourceId(name) for name in names])
        pools = {
            name: UpstreamPool(UpstreamAddress("127.0.0.1", upstream.port))
            for name, upstream in zip(names, upstreams, strict=True)
        }
        path = DataPath(steering, pools)
        port = await path.start("127.0.0.1", 0)
        results = [[] for _ in range(num_requests)]
        numbers = iter(range(num_requests))
        work = [asyncio.ensure_future(client(port, numbers, results)) for _ in range(NUM_CLIENTS)]
        for share in (0.3, 0.6):
            while len(steering.ended_turns) < share * num_requests:
                await asyncio.sleep(0.01)
            upstreams[1].kill()
            await asyncio.sleep(0.3)
            before = len(steering.ended_turns)
            await asyncio.to_thread(upstreams[1].start)
            assert len(steering.ended_turns) > before  # the others went on meanwhile
        await asyncio.gather(*work)
        await path.close()
        return steering, path.counts, results

    try:
        steering, counts, results = run(scenario(), timeout_s=200)
    finally:
        for upstream in upstreams:
            upstream.kill()

    assert [len(found) for found in results] == [1] * num_requests  # each one answered, once
    statuses = Counter(status for ((status, _, _),) in results)
    assert statuses == {200: num_requests}
    assert all(nonce == number for number, ((_, nonce, _),) in enumerate(results))
    endings = Counter(ended.outcome.ending for ended in steering.ended_turns)
    num_cut = sum(not is_whole for ((_, _, is_whole),) in results)
    assert endings[Ending.CUT] == num_cut == counts.num_cut
    assert endings[Ending.COMPLETE] == num_requests - num_cut
    assert len({id(ended.turn) for ended in steering.ended_turns}) == num_requests
    # Whoever started a request twice has said so before.
    why = Counter(told[1] for told in steering.told if told[0] == "failed")
    num_executed = sum(Path(upstream.log).stat().st_size for upstream in upstreams)
    num_sent_again = why["closed"] + counts.num_stale
    assert num_requests <= num_executed <= num_requests + num_sent_again
    assert why["connect"] > 0
    assert num_sent_again > 0
    assert set(why) <= {"connect", "closed"}
