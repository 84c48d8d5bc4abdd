"""What is believed of a prompt, from events, from what was routed, and from bytes."""

import numpy as np
import pytest

from tests.support.tiny_fleet import chain, payload, source, stored
from warmturn.cache.events import AllBlocksCleared
from warmturn.fleet import Beliefs, IndexScope, PromptBlocks, SourceState, chunk_chain
from warmturn.fleet.beliefs import CHUNK_BYTES

A, B = source("a"), source("b")
TOKENS = list(range(1, 33))


def prompt(tokens=TOKENS, *, size=4, **scope) -> PromptBlocks:
    return PromptBlocks(len(tokens), {size: chain(tokens, size=size, **scope)})


def beliefs(*, announcing=(), guessed=(), capacity=400) -> Beliefs:
    made = Beliefs()
    for each in announcing:
        made.add_source(each, announces=True, block_size=4, capacity_tokens=capacity)
    for each in guessed:
        made.add_source(each, announces=False, block_size=4, capacity_tokens=capacity)
    return made


def held(made, at, asked=None, *, now=0.0) -> int | None:
    told = made.matches(asked or prompt(), now=now).of(at)
    return None if told is None else told.match.anywhere


def test_where_nothing_is_announced_what_was_routed_is_held():
    made = beliefs(guessed=[A, B])
    assert made.routed(A, prompt(), now=0.0) is None
    assert (held(made, A), held(made, B)) == (8, 0)
    assert made.state(A) is None
    made.forget(A)
    assert held(made, A) == 0
    made.check()


def test_a_guess_is_bounded_by_the_capacity():
    made = beliefs(guessed=[A], capacity=16)
    made.routed(A, prompt(), now=0.0)
    assert held(made, A) == 4
    made.routed(A, prompt([99] * 16), now=1.0)
    assert held(made, A) == 0


def test_a_source_with_events_is_unknown_until_they_come_and_then_exact():
    made = beliefs(announcing=[A])
    assert (held(made, A), made.state(A)) == (None, SourceState.UNKNOWN)
    made.consumer.receive(A.replica, 0, payload(stored((11, 12), TOKENS[:8])))
    told = made.matches(prompt(), now=0.0).of(A)
    assert (told.match.device, told.block_tokens, told.credit) == (2, 4, 1.0)


def test_a_burst_is_believed_before_its_events_and_forgotten_after():
    made = beliefs(announcing=[A])
    made.consumer.receive(A.replica, 0, payload(stored((11, 12), TOKENS[:8])))
    expectation = made.routed(A, prompt(), now=0.0)
    assert held(made, A) == 8
    made.arrived(A, expectation, now=1.0)
    assert held(made, A, now=1.5) == 8
    assert held(made, A, now=3.0) == 2
    made.check()


def test_what_is_announced_already_is_not_expected_again():
    made = beliefs(announcing=[A])
    made.consumer.receive(A.replica, 0, payload(stored(range(11, 19), TOKENS)))
    assert made.routed(A, prompt(), now=0.0) is None


def test_a_cleared_source_holds_nothing():
    made = beliefs(announcing=[A])
    made.consumer.receive(A.replica, 0, payload(stored((11, 12), TOKENS[:8])))
    made.consumer.receive(A.replica, 1, payload(AllBlocksCleared()))
    assert held(made, A) == 0


def test_other_salts_hold_nothing():
    made = beliefs(guessed=[A])
    made.routed(A, prompt(salt="one"), now=0.0)
    assert [held(made, A, prompt(salt=salt)) for salt in ("one", "two", None)] == [8, 0, 0]


def test_bytes_are_compared_in_chunks_and_per_salt():
    made = beliefs(guessed=[A], announcing=[B])
    text = bytes(range(256)) * 4

    def chunked(data, salt="s"):
        chunks = chunk_chain(data, IndexScope(salt=salt))
        return PromptBlocks(len(data) // 4, {CHUNK_BYTES: chunks}, chunk_tokens=CHUNK_BYTES / 4)

    for at in (A, B):
        made.routed(at, chunked(text), now=0.0)
        assert held(made, at, chunked(text + b"more" * 40)) == 16
        assert held(made, at, chunked(text, salt="t")) == 0
        assert held(made, at, chunked(b"x" + text)) == 0
    told = made.matches(chunked(text), now=0.0).of(A)
    assert told.block_tokens == pytest.approx(CHUNK_BYTES / 4)
    assert len(chunk_chain(b"short", IndexScope())) == 0


def test_sizes_are_told_assumed_and_announced():
    made = Beliefs()
    assert made.block_sizes == {16}
    made.add_source(A, announces=False)
    made.add_source(B, announces=True, block_size=32)
    assert made.block_sizes == {16, 32}
    made.consumer.receive(B.replica, 0, payload(stored((11,), TOKENS[:4])))
    assert made.block_sizes == {16, 4}
    assert held(made, A, prompt(size=64)) is None  # not hashed for its size: nothing is known


def test_a_new_capacity_begins_anew_and_an_equal_one_does_not():
    made = beliefs(guessed=[A])
    made.routed(A, prompt(), now=0.0)
    made.add_source(A, announces=False, block_size=4, capacity_tokens=400)
    assert held(made, A) == 8
    made.add_source(A, announces=False, block_size=4, capacity_tokens=800)
    assert held(made, A) == 0


def test_a_replica_that_left_leaves_nothing():
    made = beliefs(guessed=[A], announcing=[B])
    made.routed(A, prompt(), now=0.0)
    made.routed(B, prompt(), now=0.0)
    for at in (A, B):
        made.remove_replica(at.replica)
        assert held(made, at) is None
        assert made.routed(at, prompt(), now=1.0) is None
    assert made.index.num_blocks == 0
    made.check()


def test_answers_shrink_what_a_guessed_pool_is_thought_to_hold():
    made = beliefs(guessed=[A], capacity=64)
    for now in range(60):
        made.answered(A, prompt(), predicted=32, delivered=0)
        made.routed(A, prompt(list(np.arange(32) + 100 * now)), now=float(now))
    assert made.num_blocks(A) < 8
