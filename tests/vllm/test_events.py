"""Our fleet index against vLLM's own block pool, fed by its events."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.vllm.conversations import token_ids
from tests.vllm.events import SOURCE, EventReader
from warmturn.blocks import CacheScope, chain_words, scheme_named
from warmturn.fleet import IndexScope, SourceState, index_chain

BLOCK = 32
SALTS = (None, "tenant-a", "tenant-b")
AT_ONCE = 8


class Sent:
    """Every sequence that a server has seen, by what names its blocks."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        """vLLM's block hash (hex) -> our index hash, of every full block."""

    def add(self, ids: list[int], salt: str | None) -> None:
        tokens = np.array(ids, np.int32)
        scope = CacheScope(model="any", salt=salt)
        words = chain_words(tokens, scope, block_size=BLOCK, scheme=scheme_named("sha256"))
        own = index_chain(tokens, IndexScope(salt=salt), block_size=BLOCK)
        self.names |= {w.tobytes().hex(): int(o) for w, o in zip(words, own, strict=True)}


def send(server, sent, ids, salt, max_tokens):
    fields = {} if salt is None else {"cache_salt": salt}
    answer = server.post(
        "/v1/completions", prompt=ids, max_tokens=max_tokens, return_token_ids=True, **fields
    )
    generated = answer["choices"][0]["token_ids"]
    sent.add([*ids, *generated][:-1], salt)  # the last token has no keys yet
    return generated


def mixed_requests(server, sent, *, num, seed):
    """Conversations that go on, eight at a time, under three salts, in a pool too small for them."""
    rng = random.Random(seed)
    conversations = [([], SALTS[i % len(SALTS)]) for i in range(40)]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        while num > 0:
            chosen = rng.sample(range(len(conversations)), min(AT_ONCE, num))
            turns = [next_turn(rng, *conversations[number]) for number in chosen]
            replies = threads.map(lambda turn: send(server, sent, *turn), turns)
            for number, (ids, salt, _), reply in zip(chosen, turns, replies, strict=True):
                conversations[number] = ([*ids, *reply], salt)
            num -= len(chosen)


def next_turn(rng, history, salt):
    """Return prompt (at most 128 tokens), salt and reply length of one turn."""
    ids = [*history, *token_ids(rng, rng.randrange(8, 48))]
    if len(ids) > 128:  # the conversation begins anew
        ids = token_ids(rng, rng.randrange(8, 96))
    return ids, salt, rng.randrange(1, 5)


def assert_index_is_pool(reader, server, sent):
    held = server.pool()["block_hashes"]
    reader.drain()
    assert [h for h in held if h not in sent.names] == []  # our preset made every one of them
    believed = {h for h, own in sent.names.items()
                if reader.index.holds(SOURCE, np.array([own], np.uint64))[0]}  # fmt: skip
    assert believed == set(held)
    assert reader.index.num_blocks_of(SOURCE) == len(set(held))
    reader.index.check()
    return held


def test_the_index_equals_the_pool_after_500_mixed_requests_with_evictions(small):
    sent = Sent()
    with EventReader(small) as reader:
        mixed_requests(small, sent, num=500, seed=11)
        held = assert_index_is_pool(reader, small, sent)
        assert reader.consumer.state(SOURCE) is SourceState.EXACT
    assert len(held) > 40  # of 48: the pool is full
    assert len(sent.names) > 4 * len(held)  # and much was evicted


def test_a_reader_that_comes_late_learns_everything_by_replay(small):
    sent = Sent()
    mixed_requests(small, sent, num=30, seed=12)
    with EventReader(small) as reader:
        # How many batches 30 requests make depends on how the engine joined them into steps.
        assert reader.num_replayed > 0
        assert reader.num_live == 0
        assert_index_is_pool(reader, small, sent)
        assert reader.consumer.state(SOURCE) is SourceState.EXACT


def test_a_gap_is_filled_by_replay(small):
    sent = Sent()
    with EventReader(small) as reader:
        mixed_requests(small, sent, num=10, seed=13)
        reader.drain()
        mixed_requests(small, sent, num=10, seed=14)
        assert reader.skip() > 0
        before = reader.num_replayed
        mixed_requests(small, sent, num=5, seed=15)
        assert_index_is_pool(reader, small, sent)
        assert reader.num_replayed > before
        assert reader.consumer.state(SOURCE) is SourceState.EXACT


def test_a_reset_empties_the_index_with_the_next_step(small):
    sent = Sent()
    with EventReader(small) as reader:
        mixed_requests(small, sent, num=10, seed=16)
        reader.drain()
        assert reader.index.num_blocks_of(SOURCE) > 0
        small.empty()
        sent = Sent()
        send(small, sent, token_ids(random.Random(17), 70), None, 2)
        assert assert_index_is_pool(reader, small, sent)


def test_a_match_predicts_what_is_delivered(small):
    """The router's question, asked of the real thing."""
    rng, sent = random.Random(18), Sent()
    with EventReader(small) as reader:
        mixed_requests(small, sent, num=40, seed=19)
        history = token_ids(rng, 100)
        generated = send(small, sent, history, "tenant-a", 4)
        reader.drain()
        longer = [*history, *generated, *token_ids(rng, 20)]

        def predicted(salt):
            chain = index_chain(np.array(longer, np.int32), IndexScope(salt=salt), block_size=BLOCK)
            return reader.consumer.match(chain).of(SOURCE).device * BLOCK

        def delivered(salt):
            answer = small.post("/v1/completions", prompt=longer, max_tokens=1, cache_salt=salt)
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        expected = {salt: predicted(salt) for salt in ("tenant-a", "tenant-b")}
        assert expected == {"tenant-a": 96, "tenant-b": 0}
        assert {salt: delivered(salt) for salt in expected} == expected


@pytest.mark.parametrize("salt", SALTS)
def test_our_preset_gives_the_hashes_of_the_engine(small, salt):
    sent = Sent()
    send(small, sent, token_ids(random.Random(20), 200), salt, 4)
    assert set(small.pool()["block_hashes"]) == set(sent.names)
