import json
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmturn.blocks import CacheScope, ChainBuilder, scheme_named
from warmturn.cache import events as events_module
from warmturn.cache.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    TierBlocksCleared,
    UnknownEvent,
    decode_batch,
    encode_batch,
)
from warmturn.errors import InvalidInput
from warmturn.types import BlockHash

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "vllm_event_batches.json").read_text()
)
ONE, TWO, THREE = (BlockHash(bytes([i]) * 32) for i in (1, 2, 3))


def ids(*values):
    return np.array(values, np.int32)


# The batches that were recorded, as this package says them: name -> time, rank, events.
SAID = {
    "first blocks": (
        1795964419.47,
        0,
        [
            BlockStored(
                (ONE, TWO), None, ids(1, 9690, 65536, 2**31 - 1), 2, extra_keys=(("tenantA",), None)
            )
        ],
    ),
    "removals before a later block": (
        2.0,
        1,
        [BlockRemoved((TWO, ONE)), BlockStored((THREE,), TWO, ids(5, 6), 2, extra_keys=(None,))],
    ),
    "adapter and image": (
        3.5,
        0,
        [
            BlockStored(
                (ONE,),
                None,
                ids(7, 8),
                2,
                extra_keys=(("sql", ("9fff", -1), "tenantA"),),
                lora_id=3,
                lora_name="sql",
            )
        ],
    ),
    "lower tier without extra keys": (
        4,
        0,
        [BlockStored((ONE,), TWO, ids(7, 8), 2, medium="CPU")],
    ),
    "cleared": (5.0, 0, [AllBlocksCleared(), AllBlocksCleared()]),
}


@pytest.mark.parametrize("name", VECTORS["batches"])
@pytest.mark.parametrize("int_hashes", [True, False])
def test_batches_are_byte_for_byte_those_of_vllm(name, int_hashes):
    timestamp_s, dp_rank, events = SAID[name]
    payload = encode_batch(events, timestamp_s=timestamp_s, dp_rank=dp_rank, int_hashes=int_hashes)
    assert payload.hex() == VECTORS["batches"][name][0 if int_hashes else 1]


@pytest.mark.parametrize("name", VECTORS["batches"])
def test_recorded_batches_of_vllm_are_read(name):
    timestamp_s, dp_rank, events = SAID[name]
    one_each = [
        single
        for event in events
        for single in (
            [BlockRemoved((block_hash,)) for block_hash in event.block_hashes]
            if isinstance(event, BlockRemoved)
            else [event]
        )
    ]
    batch = decode_batch(bytes.fromhex(VECTORS["batches"][name][1]))
    assert batch == EventBatch(timestamp_s, tuple(one_each), dp_rank)


def test_a_number_is_the_last_8_bytes_of_the_hash():
    chain = ChainBuilder(CacheScope("m"), block_size=2, scheme=scheme_named("sha256"))
    chain.extend(ids(1, 2))
    payload = encode_batch([BlockRemoved((chain.digest(0),))], timestamp_s=0)
    (removed,) = decode_batch(payload).events
    assert removed.block_hashes == (int.from_bytes(chain.digest(0)[24:], "big"),)


def packed(*events, tail=(0,)):
    return msgspec.msgpack.encode([1.0, list(events), *tail])


def stored(**changes):
    event = {
        "type": "BlockStored",
        "block_hashes": [1],
        "parent_block_hash": None,
        "token_ids": [1, 2],
        "block_size": 2,
    }
    return event | changes


def only(*events, tail=(0,)):
    (event,) = decode_batch(packed(*events, tail=tail)).events
    return event


def test_both_forms_say_the_same():
    named = stored(lora_id=None, medium="CPU", lora_name="sql", extra_keys=[["s"]], group_idx=1)
    listed = ["BlockStored", [1], None, [1, 2], 2, None, "CPU", "sql", [["s"]], 1]
    assert only(named) == only(listed)
    assert only(named).extra_keys == (("s",),)


def test_the_oldest_and_shortest_array_form_is_read():
    event = only(["BlockStored", [11], None, [1, 2], 2], tail=())
    assert event.block_hashes == (11,)
    assert event.medium == "GPU"
    assert event.extra_keys is None
    assert event.group_idx is None


def test_fields_and_positions_of_the_future_are_ignored():
    assert only(stored(some_future_field=7)) == only(stored())
    longer = ["BlockStored", [1], None, [1, 2], 2, *[None] * 6, "future", "future"]
    assert only(longer) == only(stored())


def test_an_unknown_type_is_reported_and_the_rest_is_read():
    batch = decode_batch(packed(["MadeUpEvent", 1, 2], {"type": "Other" * 99}, stored()))
    assert batch.events[0] == UnknownEvent("MadeUpEvent")
    assert len(batch.events[1].type) == 64
    assert isinstance(batch.events[2], BlockStored)


def test_a_map_in_the_place_of_the_adapter_is_sglangs_salt():
    listed = ["BlockStored", [1], None, [1, 2], 2, None, "GPU", {"cache_salt": "tenant-a"}]
    assert only(listed).cache_salt == "tenant-a"
    assert only(listed).lora_name is None
    assert only(stored(cache_salt="tenant-a")).cache_salt == "tenant-a"


@pytest.mark.parametrize("tail", [(), (None,), (0,)])
def test_a_missing_rank_is_rank_0(tail):
    assert decode_batch(packed(tail=tail)).dp_rank == 0


def test_signed_and_unsigned_numbers_are_one_hash():
    assert only({"type": "BlockRemoved", "block_hashes": [-1]}) == only(
        ["BlockRemoved", [2**64 - 1], "GPU"]
    )


def test_a_tier_that_knows_hashes_only_may_send_null_for_tokens():
    event = only(["BlockStored", [7], None, None, None, None, "CPU"])
    assert (event.block_hashes, len(event.token_ids), event.block_size) == ((7,), 0, 0)


def test_a_clear_of_one_tier_is_read_in_both_forms_and_written():
    event = TierBlocksCleared("CPU")
    by_map = only({"type": "TierBlocksCleared", "medium": "CPU", "later": 1})
    assert by_map == only(["TierBlocksCleared", "CPU"]) == event
    assert only(["TierBlocksCleared"]) == TierBlocksCleared("GPU")
    assert decode_batch(encode_batch([event], timestamp_s=1.0)).events == (event,)


def test_a_clear_is_read_in_both_forms():
    assert only({"type": "AllBlocksCleared"}) == only(["AllBlocksCleared"]) == AllBlocksCleared()


def test_a_tier_may_announce_hashes_without_tokens():
    event = only(stored(token_ids=[], block_size=0, medium="CPU"))
    assert event.token_ids.shape == (0,)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (stored(block_hashes=["1"]), r"event 0 .*block_hashes"),
        (stored(block_hashes=[1.0]), r"block_hashes"),
        (stored(block_hashes=[True]), r"block_hashes"),
        (stored(block_hashes=[b"x" * 65]), r"block_hashes"),
        (stored(token_ids=[1]), r"1 token ids for 1 blocks of 2 tokens"),
        (stored(token_ids=[1, -1]), r"token_ids\[1\]|token_ids\[...\]"),
        (stored(token_ids=[1, 2**31]), r"token_ids"),
        (stored(token_ids="ab"), r"token_ids"),
        (stored(block_size=-2), r"block_size"),
        (stored(extra_keys=[None, None]), r"2 extra keys for 1 blocks"),
        (stored(lora_name={"cache_salt": 7}), r"cache_salt of type int"),
        ({"type": "BlockStored"}, r"block_hashes"),
        ({"no": "type"}, r"type"),
        (["BlockStored", [1]], r"length"),
        ([], r"length"),
        ([7], r"expected `str`|Expected `str`"),
        (7, r"event 0"),
        (None, r"event 0"),
    ],
)
def test_a_broken_event_is_refused_by_name(event, message):
    with pytest.raises(InvalidInput, match=message):
        decode_batch(packed(event))


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x93\xcb", b"\xff" * 40, msgspec.msgpack.encode({"ts": 1.0})]
)
def test_what_is_no_batch_is_refused(payload):
    with pytest.raises(InvalidInput, match="check that the endpoint publishes KV events"):
        decode_batch(payload)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_can_do_more_than_be_refused(payload):
    with suppress(InvalidInput):
        decode_batch(payload)


@pytest.mark.parametrize("key", ["extra_keys", "surprise"])
def test_deep_nesting_is_refused_or_ignored(key):
    payload = packed(stored(**{key: [["x"]]})).replace(
        b"\x91\x91\xa1x", b"\x91" * 100_000 + b"\xc0"
    )
    with pytest.raises(InvalidInput):
        decode_batch(payload)


def test_a_batch_beyond_the_bound_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(events_module, "MAX_BATCH_BYTES", 10)
    with pytest.raises(InvalidInput, match="has 11 bytes; at most 10"):
        decode_batch(b"\x00" * 11)


def test_events_are_compared_by_value():
    event, same, other = (BlockStored((ONE,), None, ids(1, token), 2) for token in (2, 2, 3))
    assert event == same
    assert event != other
    assert event != "event"
