import hashlib
import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from warmturn.blocks import AdapterKey, CacheScope, ImageKey, chain_words, scheme_named
from warmturn.blocks.schemes import SCHEME_NAMES
from warmturn.errors import InvalidInput

TOKENS = np.arange(8, dtype=np.int32)


def native(scope, *, tokens=TOKENS, block_size=4):
    return chain_words(tokens, scope, block_size=block_size, scheme=scheme_named("native"))


def test_each_scheme_is_found_by_its_name():
    assert [scheme_named(name).name for name in SCHEME_NAMES] == list(SCHEME_NAMES)


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(InvalidInput, match="'md5' was asked for; there are native, sha256, sha"):
        scheme_named("md5")


def test_a_native_hash_is_sha256_of_parent_and_tokens():
    """Written out: root, then a block without and one with extra keys."""
    scope = CacheScope("m", salt="pepper")
    root = hashlib.sha256(
        b"warmturn block chain 1\0" + (1).to_bytes(8, "little") + b"m" + (4).to_bytes(8, "little")
    ).digest()
    salt = b"S" + (6).to_bytes(8, "little") + b"pepper"
    first = hashlib.sha256(root + np.arange(4, dtype="<i4").tobytes() + salt).digest()
    second = hashlib.sha256(first + np.arange(4, 8, dtype="<i4").tobytes()).digest()
    assert native(scope).tobytes() == first + second


def test_whatever_separates_caches_changes_the_first_block():
    image = ImageKey("x", 0, 4)
    scopes = [
        CacheScope("m"),
        CacheScope("n"),
        CacheScope("m", salt="x"),
        CacheScope("m", salt="xx"),
        CacheScope("m", AdapterKey("x", "")),
        CacheScope("m", AdapterKey("", "x")),
        CacheScope("m", AdapterKey("x", "x")),
        CacheScope("m", AdapterKey("x", ""), "x"),
        CacheScope("m", images=(image,)),
        CacheScope("m", images=(ImageKey("x", 1, 3),)),
        CacheScope("m", images=(ImageKey("x", 0, 1), ImageKey("x", 1, 1))),
        CacheScope("m", salt="x", images=(image,)),
    ]
    assert len({native(scope)[0].tobytes() for scope in scopes}) == len(scopes)


def test_a_salt_and_an_adapter_of_one_name_never_meet():
    """The mistake of untagged keys: an adapter called like a tenant's salt shared its blocks."""
    for name in SCHEME_NAMES:
        scheme = scheme_named(name)
        salted, adapted = (
            chain_words(TOKENS, scope, block_size=4, scheme=scheme)
            for scope in (CacheScope("m", salt="x"), CacheScope("m", AdapterKey("x", "x")))
        )
        assert not np.any(salted == adapted)


def test_the_block_size_is_part_of_a_native_chain():
    longer = native(CacheScope("m"), block_size=8)[0]
    assert longer.tobytes() not in {row.tobytes() for row in native(CacheScope("m"), block_size=4)}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


@st.composite
def small_scopes(draw):
    adapter = draw(st.none() | st.builds(AdapterKey, TEXTS, TEXTS))
    images = draw(st.lists(TEXTS, max_size=2))
    return CacheScope(
        draw(TEXTS),
        adapter,
        draw(st.none() | TEXTS),
        tuple(ImageKey(name, offset, 1) for offset, name in enumerate(images)),
    )


@settings(deadline=None)
@given(small_scopes(), small_scopes(), st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=2))
def test_two_scopes_never_share_a_native_hash(one, other, tokens):
    assume(one != other)
    block = np.array(tokens, np.int32)
    assert not np.array_equal(
        native(one, tokens=block, block_size=2), native(other, tokens=block, block_size=2)
    )


@pytest.mark.parametrize("name", SCHEME_NAMES)
def test_another_process_computes_the_same_hashes(name):
    """Keys that change with the process make a shared tier store everything and find nothing."""
    code = (
        "import numpy as np; from warmturn.blocks import *;"
        f"print(chain_words(np.arange(8, dtype=np.int32), CacheScope('m', salt='s'), "
        f"block_size=4, scheme=scheme_named({name!r})).tobytes().hex())"
    )
    here = chain_words(TOKENS, CacheScope("m", salt="s"), block_size=4, scheme=scheme_named(name))
    for seed in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == here.tobytes().hex()


def test_all_schemes_differ_from_one_another():
    chains = [
        chain_words(TOKENS, CacheScope("m"), block_size=4, scheme=scheme_named(name))
        for name in SCHEME_NAMES
    ]
    assert not any(np.any(a == b) for a, b in itertools.combinations(chains, 2))
