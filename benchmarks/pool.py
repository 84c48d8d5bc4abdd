"""Cost of the pool's work for one request of 6,000 tokens (375 blocks of 16).

    make bench-pool [ARGS="--json FILE"]

Three cases: all blocks hit, none hit in an empty pool, none hit in a full pool (every
block taken evicts another). Peer: the same request on the naive model the tests use for
truth, lists and dictionaries in plain Python.
"""

import sys
import time
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from rich.table import Table

import output
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


CASES = {
    "all blocks hit": {"reuse": True, "num_blocks": 2048},
    "no hit, room": {"reuse": False, "num_blocks": BLOCKS * (ROUNDS + 1)},
    "no hit, every block evicts": {"reuse": False, "num_blocks": 2048},
}


def main() -> int:
    options = output.parser(__doc__).parse_args()
    table = Table("case", "warmturn ms", "dict ms", "dict : warmturn")
    results, met = {}, True
    for name, case in CASES.items():
        times = measure(reuse=bool(case["reuse"]), num_blocks=int(case["num_blocks"]))
        ours, theirs = (output.summary(times[who]) for who in ("warmturn", "dict"))
        ratio = theirs["median"] / ours["median"]
        results[name] = {"warmturn_ms": ours, "dict_ms": theirs, "ratio": ratio}
        met &= ours["median"] < TARGET_MS
        table.add_row(name, output.shown(ours), output.shown(theirs), f"{ratio:.1f}")
    output.console.print(table)
    output.console.print(f"target: under {TARGET_MS} ms per request: {output.verdict(met=met)}")
    output.write(results, options.json)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
