import hashlib
import json
import pickle
import sys
from pathlib import Path

import cbor2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.soak import examples
from warmturn.blocks import AdapterKey, CacheScope, ChainBuilder, ImageKey, chain_words
from warmturn.blocks import bodies as bodies_module
from warmturn.blocks.keys import extra_keys_of
from warmturn.blocks.schemes import scheme_named
from warmturn.errors import MissingExtra

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "vllm_hashes.json").read_text())
PRESETS = ("sha256", "sha256_cbor")


def serialised(name, value):
    if name == "sha256":
        return pickle.dumps(value, protocol=5)
    return cbor2.dumps(value, canonical=True)


def recipe(name, token_ids, scope, *, block_size, seed="vllm-none-hash"):
    """Hash as vLLM documents it, one real serialiser call per block."""
    parent, chain = hashlib.sha256(serialised(name, seed)).digest(), b""
    for index in range(len(token_ids) // block_size):
        block = tuple(token_ids[index * block_size : (index + 1) * block_size])
        extra = received(extra_keys_of(scope, index, block_size))
        parent = hashlib.sha256(serialised(name, (parent, block, extra))).digest()
        chain += parent
    return chain


def received(extra):
    """Give each untagged string an object of its own, as it has in a process that received it."""
    if extra is None:
        return None
    return tuple(
        (tag, *(f.encode().decode() if isinstance(f, str) else f for f in fields))
        for tag, *fields in extra
    )


def scope_of(case):
    adapter, images = case.get("adapter"), case.get("images", [])
    return CacheScope(
        "m",
        AdapterKey(*adapter) if adapter else None,
        case.get("salt"),
        tuple(ImageKey(**image) for image in images),
    )


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["id"])
def test_recorded_hashes_of_vllm_are_reproduced(case, name):
    scheme = scheme_named(name, seed=case.get("seed", "vllm-none-hash"))
    chain = ChainBuilder(scope_of(case), block_size=case["block_size"], scheme=scheme)
    chain.extend(np.array(VECTORS["token_ids"], np.int32))
    hashes = [chain.root, *(chain.digest(i) for i in range(chain.num_blocks))]
    assert [digest.hex() for digest in hashes] == case[name]


@pytest.mark.parametrize("name", PRESETS)
def test_the_root_begins_as_a_real_vllm_printed_it(name):
    root = scheme_named(name).root(CacheScope("any model"), 16)
    assert root.hex().startswith(VECTORS["seen_in_vllm"][name])


EDGES = [0, 1, 23, 24, 127, 128, 255, 256, 65535, 65536, 2**31 - 1]
TOKENS = st.sampled_from(EDGES) | st.integers(0, 2**31 - 1) | st.integers(0, 300)
TEXTS = st.sampled_from(["a", "é", "mm", "lora", "東", "x" * 255, "x" * 256, "ab"]) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9
)


@st.composite
def scopes(draw):
    images, at = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=5)):
        images.append(ImageKey(draw(TEXTS), at + gap, length))
        at = images[-1].end
    adapter = draw(st.none() | st.builds(AdapterKey, TEXTS, TEXTS))
    return CacheScope("m", adapter, draw(st.none() | TEXTS), tuple(images))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from(PRESETS),
    st.lists(TOKENS, max_size=40),
    scopes(),
    st.sampled_from([1, 2, 3, 4, 5, 16, 23, 24, 32]),
    st.sampled_from(["vllm-none-hash", "0", "ü"]),
)
def test_bytes_written_here_hash_like_those_of_the_real_serialisers(
    name, tokens, scope, block_size, seed
):
    scheme = scheme_named(name, seed=seed)
    words = chain_words(np.array(tokens, np.int32), scope, block_size=block_size, scheme=scheme)
    assert words.tobytes() == recipe(name, tokens, scope, block_size=block_size, seed=seed)


@pytest.mark.parametrize("name", PRESETS)
def test_every_block_size_from_1_to_256_agrees(name):
    scope = CacheScope("m", AdapterKey("a", "a"), "salt")
    tokens = np.random.default_rng(7).choice(EDGES, 600).astype(np.int32)
    for block_size in range(1, 257):
        words = chain_words(tokens, scope, block_size=block_size, scheme=scheme_named(name))
        assert words.tobytes() == recipe(name, tokens.tolist(), scope, block_size=block_size)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("block_size", [11_990, 13_200, 70_000])
def test_blocks_longer_than_a_pickle_frame_agree(name, block_size):
    tokens = np.full(2 * block_size, 2**31 - 1, np.int32)
    scope = CacheScope("m", salt="s")
    words = chain_words(tokens, scope, block_size=block_size, scheme=scheme_named(name))
    assert words.tobytes() == recipe(name, tokens.tolist(), scope, block_size=block_size)


@pytest.mark.parametrize("name", PRESETS)
def test_without_numba_the_recipe_is_followed_block_by_block(name, monkeypatch):
    monkeypatch.setattr(bodies_module, "_kernel", lambda: None)
    scope = CacheScope("m", AdapterKey("a", "b"), "s", (ImageKey("h", 5, 9), ImageKey("h", 14, 1)))
    tokens = EDGES * 3
    words = chain_words(np.array(tokens, np.int32), scope, block_size=4, scheme=scheme_named(name))
    assert words.tobytes() == recipe(name, tokens, scope, block_size=4)


def test_one_string_object_given_twice_is_hashed_like_two_that_arrived_apart():
    """Pickle writes an object's second coming as a reference; callers share objects freely."""
    text = "one object"
    scope = CacheScope("m", AdapterKey(text, text), text, (ImageKey(text, 0, 4),))
    words = chain_words(
        np.arange(4, dtype=np.int32), scope, block_size=4, scheme=scheme_named("sha256")
    )
    assert words.tobytes() == recipe("sha256", range(4), scope, block_size=4)


def test_without_cbor2_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cbor2", None)
    with pytest.raises(MissingExtra, match=r"sha256_cbor needs the 'vllm' extra: pip install"):
        scheme_named("sha256_cbor")
    assert scheme_named("sha256").name == "sha256"
