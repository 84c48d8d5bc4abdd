"""Time the chain of block hashes against the bare hashing of the same bytes.

    python benchmarks/blocks.py [--tokens N] [--block-size N] [--rounds N] [--json FILE]

The peer of a preset is `[hashlib.sha256(message).digest() for message in messages]` over the
messages as the real serialiser gives them: what is left when serialising and chaining cost
nothing. Peer and chain take turns within one process, so that both see the same machine. Token
ids are uniform over the vocabulary, the worst case for formats whose integers vary in width.
"""

import argparse
import hashlib
import json
import pickle
import platform
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cbor2
import numpy as np

from warmturn.blocks import CacheScope, ChainBuilder, chain_words, scheme_named
from warmturn.types import HashWords

SCOPE = CacheScope("model", salt="tenant")
VOCABULARIES = (49_152, 151_936)  # SmolLM2; Qwen 2 and 3
SERIALISERS: dict[str, Callable[[Any], bytes]] = {
    "sha256": lambda value: pickle.dumps(value, protocol=5),
    "sha256_cbor": lambda value: cbor2.dumps(value, canonical=True),
}


def main() -> None:
    """Measure, print a table, and write it as JSON where asked."""
    options = parsed_options()
    rows = [
        measured(name, num_vocabulary_ids, options)
        for num_vocabulary_ids in VOCABULARIES
        for name in ("native", "sha256", "sha256_cbor")
    ]
    rows.append(measured_turn(options))
    print_table(rows, options)
    if options.json:
        document = {"machine": machine(), "options": vars(options), "rows": rows}
        text = json.dumps(document, indent=1) + "\n"
        sys.stdout.write(text) if options.json == "-" else Path(options.json).write_text(text)


def parsed_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", metavar="FILE", help="'-' for standard output")
    return parser.parse_args()


def measured(name: str, num_vocabulary_ids: int, options: argparse.Namespace) -> dict[str, Any]:
    """Time one scheme on one vocabulary; presets beside their peer."""
    rng = np.random.default_rng(0)
    token_ids = rng.integers(0, num_vocabulary_ids, options.tokens).astype(np.int32)
    scheme, size = scheme_named(name), options.block_size

    def chain() -> HashWords:
        return chain_words(token_ids, SCOPE, block_size=size, scheme=scheme)

    row: dict[str, Any] = {"scheme": name, "vocabulary": num_vocabulary_ids}
    if name not in SERIALISERS:
        return row | summary("ms", timed([chain], options.rounds)[0])
    messages, digests = serialised(token_ids.tolist(), size, SERIALISERS[name])
    if chain().tobytes() != b"".join(digests):
        sys.exit(f"{name} differs from the recipe")

    def bare() -> list[bytes]:
        return [hashlib.sha256(message).digest() for message in messages]

    ours, peer = timed([chain, bare], options.rounds)
    ratios = [one / other for one, other in zip(ours, peer, strict=True)]
    return (
        row
        | summary("ms", ours)
        | summary("bare_ms", peer)
        | summary("ratio", ratios, scale=1)
        | {"ratio_of_fastest": round(min(ours) / min(peer), 3)}
    )


def measured_turn(options: argparse.Namespace) -> dict[str, Any]:
    """Time what a later turn costs: 500 tokens appended to a chain that exists."""
    rng = np.random.default_rng(0)
    chain = ChainBuilder(SCOPE, block_size=options.block_size, scheme=scheme_named("native"))
    chain.extend(rng.integers(0, VOCABULARIES[0], options.tokens).astype(np.int32))
    turn = rng.integers(0, VOCABULARIES[0], 500).astype(np.int32)
    times = timed([lambda: chain.extend(turn)], options.rounds)[0]
    return {"scheme": "native, 500 tokens more", "vocabulary": VOCABULARIES[0]} | summary(
        "ms", times
    )


def serialised(
    token_ids: list[int], block_size: int, serialise: Callable[[Any], bytes]
) -> tuple[list[bytes], list[bytes]]:
    """Return the messages of a chain by the recipe, and their digests."""
    parent = hashlib.sha256(serialise("vllm-none-hash")).digest()
    messages, digests = [], []
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        extra = (("cache_salt", SCOPE.salt),) if start == 0 else None
        block = tuple(token_ids[start : start + block_size])
        messages.append(serialise((parent, block, extra)))
        digests.append(parent := hashlib.sha256(messages[-1]).digest())
    return messages, digests


def timed(functions: list[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Return the seconds of each round per function; they take turns."""
    times: list[list[float]] = [[] for _ in functions]
    for round_number in range(rounds + 3):
        for function, seconds in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if round_number >= 3:  # the first ones warm caches and load the kernel
                seconds.append(time.perf_counter() - start)
    return times


def summary(name: str, values: list[float], *, scale: float = 1e3) -> dict[str, Any]:
    """Return median and quartiles."""
    low, median, high = statistics.quantiles(values, n=4)
    return {
        name: round(median * scale, 3),
        f"{name}_quartiles": [round(low * scale, 3), round(high * scale, 3)],
    }


def machine() -> dict[str, str]:
    """Say what it was measured with."""
    return {
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        "cbor2": version("cbor2"),
        "processor": platform.processor() or platform.machine(),
    }


def print_table(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print one line per measurement."""
    num_blocks = options.tokens // options.block_size
    print(f"{options.tokens} tokens, {num_blocks} blocks, median of {options.rounds} (quartiles)")
    print(f"{machine()}\n")
    print(f"{'scheme':<24}{'vocabulary':>11}{'chain ms':>22}{'bare ms':>22}{'ratio':>22}")
    for row in rows:
        cells = "".join(f"{with_spread(row, name):>22}" for name in ("ms", "bare_ms", "ratio"))
        print(f"{row['scheme']:<24}{row['vocabulary']:>11}{cells}")


def with_spread(row: dict[str, Any], name: str) -> str:
    """Format a median with its quartiles; nothing where there is none."""
    if name not in row:
        return ""
    low, high = row[f"{name}_quartiles"]
    return f"{row[name]:.3f} ({low:.3f}-{high:.3f})"


if __name__ == "__main__":
    main()
