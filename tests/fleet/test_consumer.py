import os

import msgspec
import numpy as np
import pytest

from tests.support.tiny_fleet import chain, payload, source, stored
from warmturn.blocks import ImageKey
from warmturn.cache.events import AllBlocksCleared, BlockRemoved, TierBlocksCleared
from warmturn.fleet import Arrival, FleetConsumer, FleetIndex, PrefixMatch, SourceState
from warmturn.fleet import consumer as consumer_module
from warmturn.types import ReplicaId

R, A = ReplicaId("a"), source("a")
TOKENS = [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.fixture
def consumer():
    made = FleetConsumer(FleetIndex())
    yield made
    made.index.check()


def held(consumer: FleetConsumer, tokens=TOKENS, *, who=A, **scope) -> PrefixMatch:
    return consumer.index.match(chain(tokens, **scope)).of(who)


def feed(consumer: FleetConsumer, *events, start: int = 0) -> None:
    for seq, event in enumerate(events, start=start):
        consumer.receive(R, seq, payload(event))


def test_blocks_are_found_by_their_tokens_whatever_the_engine_calls_them(consumer):
    feed(consumer, stored([-1, os.urandom(32)], TOKENS))
    assert held(consumer).device == 2
    assert consumer.state(A) is SourceState.EXACT
    assert consumer.announced(A).block_size == 4


def test_blocks_that_follow_a_parent_continue_its_chain(consumer):
    feed(consumer, stored([7], TOKENS[:4]), stored([9], TOKENS[4:], parent=7))
    assert held(consumer).device == 2


def test_a_signed_and_an_unsigned_hash_are_one(consumer):
    feed(consumer, stored([-1], TOKENS[:4]), BlockRemoved((2**64 - 1,)))
    assert held(consumer).anywhere == 0


def test_nothing_below_an_unknown_parent_is_believed(consumer):
    feed(consumer, stored([1], TOKENS[:4]), stored([9], TOKENS[4:], parent=42))
    assert held(consumer, TOKENS[4:]).anywhere == 0
    assert held(consumer).device == 1
    assert consumer.state(A) is SourceState.DEGRADED


def test_a_block_without_tokens_is_known_by_its_hash(consumer):
    offloaded = stored([1, 5], [], size=0, medium="CPU")
    feed(consumer, stored([1], TOKENS[:4]), offloaded, BlockRemoved((1,)))
    assert held(consumer) == PrefixMatch(host=1, near=1, anywhere=1)
    assert list(consumer.announced(A).unresolved_hashes) == [5]
    assert consumer.announced(A).num_unresolved == 1


def test_a_block_that_left_the_device_before_its_host_copy_came_is_still_known(consumer):
    offloaded = stored([1], [], size=0, medium="CPU")
    feed(consumer, stored([1], TOKENS[:4]), BlockRemoved((1,)), offloaded)
    assert held(consumer).host == 1


def test_a_salt_beside_block_0_keeps_the_whole_chain_apart(consumer):
    feed(consumer, stored([1, 2], TOKENS, extra_keys=(("s",), None)))
    assert held(consumer).anywhere == 0
    assert held(consumer, salt="s").device == 2
    assert held(consumer, salt="t").anywhere == 0


def test_adapter_salt_and_image_are_told_apart_in_one_list_of_keys(consumer):
    keys = (("lora", ("cat", 2), "s"), ("lora", ("cat", -2)))
    feed(consumer, stored([1, 2], TOKENS, extra_keys=keys, lora_id=1, lora_name="lora"))
    image = ImageKey("cat", offset=2, length=4)
    assert held(consumer, salt="s", adapter="lora", images=(image,)).device == 2
    assert held(consumer, salt="s", adapter="lora").anywhere == 0
    assert held(consumer, adapter="lora", images=(image,)).anywhere == 0
    assert held(consumer, salt="s", images=(image,)).anywhere == 0


def test_an_image_may_be_told_without_its_offset():
    consumer = FleetConsumer(FleetIndex())
    feed(consumer, stored([1, 2], TOKENS, extra_keys=(("cat",), ("cat",))))
    image = ImageKey("cat", offset=2, length=4)
    assert held(consumer, images=(image,)).device == 2
    assert held(consumer).anywhere == 0


def test_an_adapter_known_by_number_only_is_not_taken_for_the_base_model(consumer):
    feed(consumer, stored([1], TOKENS[:4], lora_id=3))
    assert held(consumer).anywhere == 0


def test_a_lower_tier_that_leaves_the_salt_out_is_not_credited_to_callers_without_one(consumer):
    offloaded = stored([11], TOKENS[:4], medium="CPU")
    feed(consumer, stored([1, 2], TOKENS, extra_keys=(("s",), None)), offloaded)
    assert held(consumer).anywhere == 0, "an engine that tells salts did not tell this one's"
    same_hash = stored([1], TOKENS[:4], medium="CPU")
    feed(consumer, same_hash, start=2)
    assert held(consumer, salt="s").host == 1
    assert held(consumer).anywhere == 0


def test_a_lower_tier_that_leaves_an_image_out_is_named_by_the_devices_hash(consumer):
    image = ImageKey("cat", offset=4, length=4)
    feed(
        consumer,
        stored([1, 2], TOKENS, extra_keys=(None, (("cat", 0),))),
        stored([2], TOKENS[4:], parent=1, medium="CPU"),
        BlockRemoved((2,)),
    )
    assert held(consumer, images=(image,)) == PrefixMatch(device=1, near=2, anywhere=2)
    assert held(consumer).anywhere == 1


def test_an_engine_that_never_tells_salts_is_taken_to_have_none(consumer):
    feed(consumer, stored([11], TOKENS[:4], medium="CPU"))
    assert held(consumer).host == 1


def test_a_clear_drops_all_tiers_of_one_rank_and_repairs_its_state(consumer):
    feed(consumer, stored([9], TOKENS[4:], parent=42), stored([1], TOKENS[:4]))
    consumer.receive(R, 0, payload(stored([1], TOKENS[:4]), rank=1))
    assert consumer.state(A) is SourceState.DEGRADED
    feed(consumer, AllBlocksCleared(), start=2)
    assert consumer.state(A) is SourceState.EXACT
    assert held(consumer).anywhere == 0
    assert held(consumer, who=source("a", 1)).device == 1


def test_a_clear_of_one_tier_keeps_the_copies_below(consumer):
    feed(
        consumer,
        stored([1], TOKENS[:4]),
        stored([1], [], size=0, medium="CPU"),
        TierBlocksCleared("GPU"),
    )
    assert held(consumer) == PrefixMatch(host=1, near=1, anywhere=1)


def window(hashes, tokens, **fields):
    return stored(hashes, tokens, group_idx=1, kv_cache_spec_kind="sliding_window", **fields)


def usable(consumer: FleetConsumer, tokens=TOKENS) -> int:
    return consumer.match(chain(tokens)).of(A).device


@pytest.mark.parametrize("window_first", [False, True])
def test_a_prefix_needs_its_last_block_in_every_windowed_group(consumer, window_first):
    events = [stored([1, 2], TOKENS), window([1, 2], TOKENS)]
    feed(consumer, *(events[::-1] if window_first else events))
    assert usable(consumer) == 2
    feed(consumer, BlockRemoved((1,), group_idx=1), start=2)
    assert usable(consumer) == 2, "the window has moved on, as windows do"
    feed(consumer, BlockRemoved((2,), group_idx=1), start=3)
    assert (usable(consumer), held(consumer).device) == (0, 2)
    feed(consumer, window([1], TOKENS[:4]), start=4)
    assert usable(consumer) == 1


def test_windowed_blocks_continue_their_own_chain_where_they_come_first(consumer):
    feed(consumer, window([1], TOKENS[:4]), window([2], TOKENS[4:], parent=1))
    feed(consumer, stored([1, 2], TOKENS), start=2)
    assert usable(consumer) == 2
    assert consumer.announced(A).num_skipped_events == 0


def test_a_clear_and_a_removal_take_the_windows_along(consumer):
    events = [stored([1, 2], TOKENS), window([1, 2], TOKENS)]
    feed(consumer, *events, AllBlocksCleared())
    assert consumer.index.num_blocks == 0
    feed(consumer, stored([1, 2], TOKENS), start=3)
    assert usable(consumer) == 2, "no window was announced since"
    feed(consumer, window([1, 2], TOKENS), TierBlocksCleared("GPU"), start=4)
    assert usable(consumer) == 0
    consumer.remove_replica(R)
    assert consumer.index.sources == ()


def test_a_second_group_with_whole_prefixes_is_counted_and_skipped(consumer):
    feed(
        consumer,
        stored([1], TOKENS[:4], group_idx=0),
        stored([1], TOKENS[:4], group_idx=2),
        BlockRemoved((1,), group_idx=2),
    )
    assert held(consumer).device == 1
    assert consumer.announced(A).num_skipped_events == 2


def test_a_window_of_unknown_blocks_is_counted_and_skipped(consumer):
    feed(consumer, stored([1], TOKENS[:4]), window([9], TOKENS[4:], parent=42))
    assert consumer.announced(A).num_skipped_events == 1
    assert consumer.state(A) is SourceState.EXACT
    assert consumer.match(chain(TOKENS)).of(source("never")) == PrefixMatch()


def test_unknown_events_are_counted_and_change_nothing(consumer):
    raw = msgspec.msgpack.encode([1.0, [["MadeUp", 1], {"type": "MadeUp"}], 0])
    consumer.receive(R, 0, raw)
    assert consumer.announced(A).unknown_events == {"MadeUp": 2}
    assert consumer.state(A) is SourceState.EXACT
    assert consumer.num_decode_errors == 0


@pytest.mark.parametrize("raw", [b"", b"\x00", b"garbage", msgspec.msgpack.encode([1.0, [[]]])])
def test_a_garbled_batch_is_counted_and_makes_its_source_unknown(consumer, raw):
    feed(consumer, stored([1], TOKENS[:4]))
    consumer.receive(R, 1, raw)
    assert consumer.num_decode_errors == 1
    assert consumer.state(A) is SourceState.UNKNOWN


def test_garbled_ranks_cannot_open_sources_without_end(consumer, monkeypatch):
    monkeypatch.setattr(consumer_module, "MAX_RANKS", 2)
    for rank in range(5):
        consumer.receive(R, 0, payload(stored([1], TOKENS[:4]), rank=rank))
    assert len(consumer.sources) == 2
    assert consumer.num_decode_errors == 3


def test_a_source_that_announces_more_than_it_can_hold_is_forgotten(consumer):
    consumer.replay_ended(consumer.connect(A, max_blocks=1), answered=False)
    feed(consumer, stored([1, 2], TOKENS))
    assert held(consumer).anywhere == 0
    assert consumer.state(A) is SourceState.UNKNOWN
    assert consumer.announced(A).num_overflows == 1


def test_a_later_start_time_is_a_restart_unless_the_numbers_told_it(consumer):
    feed(consumer, stored([1], TOKENS[:4]))
    assert consumer.observe_start(R, 100.0) == []
    (request,) = consumer.observe_start(R, 200.0)
    assert request.from_seq == 0
    assert held(consumer).anywhere == 0
    assert consumer.state(A) is SourceState.UNKNOWN
    consumer.replayed(request, 0, payload(stored([1], TOKENS[:4])))
    consumer.replay_ended(request, answered=True)
    assert consumer.state(A) is SourceState.EXACT
    assert consumer.receive(R, 0, payload(stored([2], TOKENS[:4]))).arrival is Arrival.RESTARTED
    assert consumer.observe_start(R, 300.0) == []
    assert held(consumer).device == 1


def test_health_down_and_up_forgets_every_rank(consumer):
    for rank in range(2):
        consumer.receive(R, 0, payload(stored([1], TOKENS[:4]), rank=rank))
    assert len(consumer.restarted(R)) == 2
    assert consumer.index.num_blocks == 0


def test_a_restarted_engine_may_have_blocks_of_another_size(consumer):
    feed(consumer, stored([1, 2], TOKENS))
    feed(consumer, stored([1], TOKENS, size=8))
    assert consumer.announced(A).block_size == 8
    assert consumer.index.match(chain(TOKENS, size=8)).of(A).device == 1


def test_blocks_of_two_sizes_at_once_are_not_mixed(consumer):
    feed(consumer, stored([1, 2], TOKENS), stored([3], TOKENS, size=8))
    assert consumer.announced(A).num_skipped_events == 1
    assert held(consumer).device == 2


def test_a_sleeping_replica_holds_nothing_and_its_numbers_go_on(consumer):
    feed(consumer, stored([1], TOKENS[:4]))
    consumer.purge(R)
    assert held(consumer).anywhere == 0
    assert consumer.receive(R, 1, payload(AllBlocksCleared())).arrival is Arrival.APPLIED


def test_a_removed_replica_leaves_nothing_behind(consumer):
    feed(consumer, stored([1], TOKENS[:4]))
    consumer.remove_replica(R)
    assert consumer.sources == consumer.index.sources == ()
    assert consumer.state(A) is SourceState.UNKNOWN


def test_distrust_degrades_first_and_makes_unknown_then(consumer):
    feed(consumer, stored([1], TOKENS[:4]))
    states = []
    for _ in range(2):
        consumer.distrust(A)
        states.append(consumer.state(A))
    assert states == [SourceState.DEGRADED, SourceState.UNKNOWN]


def test_replayed_batches_of_another_rank_are_ignored(consumer):
    request = consumer.receive(R, 1, payload(stored([2], TOKENS[4:], parent=1))).replay
    consumer.replayed(request, 0, payload(stored([1], TOKENS[:4]), rank=5))
    consumer.replayed(request, 0, payload(stored([1], TOKENS[:4])))
    consumer.replay_ended(request, answered=True)
    assert held(consumer).device == 2
    assert consumer.state(A) is SourceState.EXACT


def test_what_a_pool_announces_is_what_the_index_believes():
    """The embedded replica's own events, evictions included, through the wire."""
    from warmturn.blocks import CacheScope, ChainBuilder, scheme_named
    from warmturn.cache.events import encode_batch
    from warmturn.cache.pool import Pool
    from warmturn.replica.announce import removed
    from warmturn.types import RequestId

    consumer, pool = FleetConsumer(FleetIndex()), Pool(6, 4)
    rng, prompts = np.random.default_rng(0), []
    for seq in range(12):
        tokens = rng.integers(0, 9, 12, dtype=np.int32)
        tokens[:4] = 1
        builder = ChainBuilder(CacheScope("m"), block_size=4, scheme=scheme_named("native"))
        builder.extend(tokens)
        hits = pool.allocate(RequestId("r"), builder.words, 13, now=float(seq))
        is_new = pool.store(RequestId("r"), builder.words, now=float(seq))
        pool.release(RequestId("r"), now=float(seq))
        events = removed(pool.drain().evicted)
        for index in np.flatnonzero(is_new) + hits:
            digest, parent = (
                builder.digest(int(index)),
                builder.digest(int(index) - 1) if index else None,
            )
            part = tokens[4 * index : 4 * index + 4]
            events.append(stored([digest], part, parent=parent, extra_keys=(None,)))
        consumer.receive(R, seq, encode_batch(events, timestamp_s=1.0))
        prompts.append((builder.words.copy(), tokens))
        for words, asked in prompts:
            assert held(consumer, asked).device == pool.match(words)
    consumer.index.check()
    assert consumer.index.num_blocks == pool.num_cached
