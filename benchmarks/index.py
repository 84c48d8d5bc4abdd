"""The fleet's index: match, insert and memory, beside NVIDIA Dynamo's RadixTree and a dict.

    make bench-index [ARGS="--json FILE --peer-python PATH"]

Blocks of 16 tokens, 64 blocks per event, 204,800 blocks per source. A match is of one sequence of
2,048 blocks (32,768 tokens): *hot* is the same one again, *first touch* another one each time, in
an index of 1.5 million other blocks. The peers get hashes that are computed already, as the index
does; hashing from token ids is a row of its own. Dynamo's tree (`ai-dynamo-runtime` from PyPI) is
measured in the Python given by `--peer-python`, where it is installed, in the same run.
"""

import argparse
import importlib.metadata
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CHAIN, PER_EVENT, EVENTS, ROUNDS, SOURCES = 2048, 64, 3200, 3, 8
BLOCKS = PER_EVENT * EVENTS
HOT_US, FIRST_US, INSERT_PER_S, ENTRY_BYTES = 30.0, 100.0, 4e6, 140.0
PAGE_BYTES = 4096
OTHERS = 1_500_000


def hashes(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return rng.integers(1, 2**64, shape, dtype=np.uint64)


def median_us(run: Callable[[], object], times: int) -> float:
    run()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) * 1e6)
    return float(np.median(taken))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def timed_s(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ours(seed: int) -> dict[str, float]:
    from warmturn.fleet import FleetIndex, SourceId, Tier
    from warmturn.types import ReplicaId

    rng = np.random.default_rng(seed)
    sources = [SourceId(ReplicaId(f"replica-{i}")) for i in range(SOURCES)]
    found: dict[str, float] = {}
    for name, room in (("insert_growing_per_s", None), ("insert_per_s", BLOCKS)):
        index = FleetIndex()
        index.add_source(sources[0], max_blocks=room)
        events = list(
            zip(hashes(rng, EVENTS, PER_EVENT), hashes(rng, EVENTS, PER_EVENT), strict=True)
        )

        def insert(index: FleetIndex = index, events: list[Any] = events) -> None:
            for keys, names in events:
                index.store(sources[0], keys, names, Tier.DEVICE)

        found[name] = BLOCKS / timed_s(insert)
        found[name.replace("insert", "bytes").replace("_per_s", "")] = index.num_bytes / BLOCKS
    index, chains = FleetIndex(), hashes(rng, 60, CHAIN)
    for source in sources:
        index.add_source(source)
    for number in range(OTHERS // PER_EVENT):  # the chains come in between, as conversations do
        batch = hashes(rng, PER_EVENT)
        index.store(sources[number % SOURCES], batch, batch, Tier.DEVICE)
        if number % (OTHERS // PER_EVENT // len(chains)) == 0:
            chain = chains[min(number // (OTHERS // PER_EVENT // len(chains)), len(chains) - 1)]
            index.store(sources[0], chain, chain, Tier.DEVICE)
    first = [timed_s(lambda c=chain: index.match(c)) * 1e6 for chain in chains[1:]]
    found["first_touch_us"] = float(np.median(first))
    found["hot_us"] = median_us(lambda: index.match(chains[0]), 200)
    return found


def hashing() -> dict[str, float]:
    from warmturn.fleet import IndexScope, index_chain

    tokens = np.random.default_rng(0).integers(0, 150_000, CHAIN * 16, dtype=np.int32)
    return {"chain_us": median_us(lambda: index_chain(tokens, IndexScope(), block_size=16), 100)}


def plain_dict(seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    held: dict[int, int] = {}
    events = [event.tolist() for event in hashes(rng, EVENTS, PER_EVENT)]

    def insert() -> None:
        for event in events:
            for name in event:
                held[name] = held.get(name, 0) | 1

    def match(chain: list[int]) -> int:
        sources, length = 2**SOURCES - 1, 0
        for name in chain:
            sources &= held.get(name, 0)
            if not sources:
                break
            length += 1
        return length

    rate = BLOCKS / timed_s(insert)
    chains = np.array(events, np.uint64).reshape(-1, CHAIN).tolist()
    first = [timed_s(lambda c=chain: match(c)) * 1e6 for chain in chains]
    hot = median_us(lambda: match(chains[0]), 100)
    return {"insert_per_s": rate, "first_touch_us": float(np.median(first)), "hot_us": hot}


def dynamo(seed: int) -> dict[str, float]:
    from dynamo._core import RadixTree

    rng = np.random.default_rng(seed)

    def event(number: int, parent: int | None, blocks: list[int]) -> bytes:
        stored = [{"block_hash": b, "tokens_hash": b} for b in blocks]
        data = {"stored": {"parent_hash": parent, "blocks": stored}}
        return json.dumps({"event_id": number, "data": data, "dp_rank": 0}).encode()

    def sequences(num: int) -> list[list[int]]:
        return (hashes(rng, num, CHAIN) >> np.uint64(1)).tolist()

    def as_events(sequence: list[int], at: int) -> list[bytes]:
        starts = range(0, CHAIN, PER_EVENT)
        return [
            event(at + i, sequence[s - 1] if s else None, sequence[s : s + PER_EVENT])
            for i, s in enumerate(starts)
        ]

    tree = RadixTree()
    chains = sequences(BLOCKS // CHAIN)
    events = [e for i, chain in enumerate(chains) for e in as_events(chain, i * 64)]
    before = resident_bytes()

    def insert() -> None:
        for payload in events:
            tree.apply_event(0, payload)

    rate = BLOCKS / timed_s(insert)
    grown = resident_bytes() - before
    for i, chain in enumerate(sequences(OTHERS // CHAIN)):
        for payload in as_events(chain, (len(chains) + i) * 64):
            tree.apply_event(0, payload)
    first = [timed_s(lambda c=chain: tree.find_matches(c)) * 1e6 for chain in chains]
    hot = median_us(lambda: tree.find_matches(chains[0]), 200)
    matched = max(tree.find_matches(chains[0]).scores.values())
    assert matched == CHAIN, f"the peer matched {matched} of {CHAIN} blocks"
    return {
        "insert_per_s": rate,
        "first_touch_us": float(np.median(first)),
        "hot_us": hot,
        "bytes": grown / BLOCKS,
        "version": importlib.metadata.version("ai-dynamo-runtime"),  # type: ignore[dict-item]
    }


def dynamo_elsewhere(python: str, seed: int) -> dict[str, Any] | None:
    command = [python, __file__, "--as-peer", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, str) else float(np.median([r[name] for r in rounds]))
        for name, value in rounds[0].items()
    }


def measure(peer_python: str) -> dict[str, Any]:
    ours(0)  # compile
    rounds: dict[str, list[dict[str, Any]]] = {"warmturn": [], "dict": [], "RadixTree": []}
    for seed in range(1, ROUNDS + 1):
        rounds["warmturn"].append(ours(seed) | hashing())
        rounds["dict"].append(plain_dict(seed))
        if (peer := dynamo_elsewhere(peer_python, seed)) is not None:
            rounds["RadixTree"].append(peer)
    return {name: medians(found) for name, found in rounds.items() if found}


def report(result: dict[str, Any]) -> None:
    from rich.table import Table

    import output

    mine, peer = result["warmturn"], result.get("RadixTree")
    title = f"RadixTree {peer['version']}" if peer else "RadixTree (not installed)"
    table = Table("", "warmturn", title, "dict", "target", title="index of block hashes")

    def row(label: str, name: str, unit: str, target: str, *, met: bool, scale: float = 1) -> None:
        shown = [
            f"{r[name] / scale:,.1f}" if r and name in r else "-"
            for r in (mine, peer, result["dict"])
        ]
        table.add_row(f"{label} [{unit}]", *shown, f"{target} {output.verdict(met=met)}")

    hot, first = mine["hot_us"], mine["first_touch_us"]
    row("match of 2,048 blocks, hot", "hot_us", "µs", "≤ 30", met=hot <= HOT_US)
    row("the same, first touch", "first_touch_us", "µs", "≤ 100", met=first <= FIRST_US)
    rate = mine["insert_per_s"]
    row("insert", "insert_per_s", "M blocks/s", "≥ 4", met=rate >= INSERT_PER_S, scale=1e6)
    row("memory", "bytes", "bytes/entry", "≤ 140", met=mine["bytes"] <= ENTRY_BYTES)
    output.console.print(table)
    output.console.print(
        f"insert while growing {mine['insert_growing_per_s'] / 1e6:,.1f} M blocks/s, "
        f"{mine['bytes_growing']:,.0f} bytes/entry; hashing 32,768 token ids {mine['chain_us']:,.0f} µs"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures here; - for stdout")
    parser.add_argument("--peer-python", default=sys.executable, help="where Dynamo is installed")
    parser.add_argument("--as-peer", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_peer is not None:
        print(json.dumps(dynamo(options.as_peer)))
        return
    import output

    result = measure(options.peer_python)
    report(result)
    output.write(result, options.json)


if __name__ == "__main__":
    main()
