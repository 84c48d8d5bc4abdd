"""Cost of the pool's work for one request of 6,000 tokens (375 blocks of 16).

    make bench-pool [ARGS="--json FILE"]

Three cases: all blocks hit, none hit in an empty pool, none hit in a full pool (every
block taken evicts another). Peer: the same request on the naive model the tests use for
truth, lists and dictionaries in plain Python.
"""

import argparse
import json
import statistics
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from warmturn.cache.pool import Pool
from warmturn.types import HashWords, RequestId

BLOCKS, BLOCK_SIZE, ROUNDS = 375, 16, 300
TARGET_MS = 0.5


class DictPool:
    """LRU over an ordered dictionary: what a first version in plain Python looks like."""

    def __init__(self, num_blocks: int) -> None:
        self.free = list(range(num_blocks))
        self.idle: OrderedDict[bytes, int] = OrderedDict()
        self.held: dict[bytes, list[int]] = {}

    def run(self, digests: list[bytes]) -> None:
        hits = 0
        for digest in digests:
            if digest not in self.idle:
                break
            hits += 1
        for digest in digests[:hits]:
            self.held[digest] = [self.idle.pop(digest), 1]
        for digest in digests[hits:]:
            block = self.free.pop() if self.free else self.idle.popitem(last=False)[1]
            self.held[digest] = [block, 1]
        for digest in reversed(digests):
            entry = self.held[digest]
            entry[1] -= 1
            if not entry[1]:
                self.idle[digest] = self.held.pop(digest)[0]


def chain(rng: np.random.Generator) -> HashWords:
    return rng.integers(0, 2**63, size=(BLOCKS, 4), dtype=np.uint64)


def pool_request(pool: Pool, words: HashWords) -> None:
    name = RequestId("r")
    pool.match(words)
    pool.allocate(name, words, BLOCKS * BLOCK_SIZE, now=0.0)
    pool.store(name, words, now=1.0)
    pool.release(name, now=2.0)


def timed_ms(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def measure(*, reuse: bool, num_blocks: int) -> dict[str, list[float]]:
    """Interleave both pools on the same chains; return milliseconds per request."""
    rng = np.random.default_rng(1)
    ours, theirs = Pool(num_blocks, BLOCK_SIZE), DictPool(num_blocks)
    same = chain(rng)
    times: dict[str, list[float]] = {"warmturn": [], "dict": []}
    for _ in range(ROUNDS):
        words = same if reuse else chain(rng)
        digests = [row.tobytes() for row in words]
        times["warmturn"].append(timed_ms(lambda w=words: pool_request(ours, w)))
        times["dict"].append(timed_ms(lambda d=digests: theirs.run(d)))
        ours.drain()
    ours.check()
    return {name: values[5:] for name, values in times.items()}


def summary(values: list[float]) -> dict[str, float]:
    tenths = statistics.quantiles(values, n=10)
    return {"median_ms": statistics.median(values), "p10_ms": tenths[0], "p90_ms": tenths[-1]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the figures; - for stdout")
    options = parser.parse_args()
    cases = {
        "all blocks hit": {"reuse": True, "num_blocks": 2048},
        "no hit, room": {"reuse": False, "num_blocks": BLOCKS * (ROUNDS + 1)},
        "no hit, every block evicts": {"reuse": False, "num_blocks": 2048},
    }
    table = Table("case", "warmturn ms (p10-p90)", "dict ms (p10-p90)", "dict : warmturn")
    results, met = {}, True
    for name, case in cases.items():
        ours, theirs = (summary(v) for v in measure(**case).values())  # type: ignore[arg-type]
        ratio = theirs["median_ms"] / ours["median_ms"]
        results[name] = {"warmturn": ours, "dict": theirs, "ratio": ratio}
        met &= ours["median_ms"] < TARGET_MS
        cells = (
            f"{r['median_ms']:.3f} ({r['p10_ms']:.3f}-{r['p90_ms']:.3f})" for r in (ours, theirs)
        )
        table.add_row(name, *cells, f"{ratio:.1f}")
    console = Console(stderr=options.json == "-")
    console.print(table)
    console.print(f"target: under {TARGET_MS} ms per request: {'met' if met else 'NOT met'}")
    if options.json == "-":
        print(json.dumps(results, indent=1))
    elif options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
