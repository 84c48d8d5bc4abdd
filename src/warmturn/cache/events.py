"""What a pool announces when its content changes, and vLLM's wire form of it.

One batch is msgpack of `[timestamp_s, [event, ...], dp_rank]`. Since mid-2026 an event is a map
with a `type`; before, it was an array of the same values in the same order. Written is the map,
byte for byte as vLLM 0.32 writes it; read are both, from vLLM and from SGLang.

Events carry prompts and salts in clear. Who can read them can read the conversations.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta

from warmturn.errors import InvalidInput
from warmturn.types import BlockHash, TokenIds

__all__ = [
    "MAX_BATCH_BYTES",
    "AllBlocksCleared",
    "BlockRemoved",
    "BlockStored",
    "CacheEvent",
    "EventBatch",
    "EventHash",
    "TierBlocksCleared",
    "UnknownEvent",
    "decode_batch",
    "encode_batch",
]

MAX_BATCH_BYTES = 64 * 2**20
"""Longest batch that is read: some 10 million token ids, far beyond what one step stores."""

EventHash: TypeAlias = BlockHash | int
"""A block's hash as events name it: 32 bytes, or their last 8 as a number below 2**64."""

_ExtraKeys: TypeAlias = tuple[tuple[Any, ...] | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BlockStored:
    """Full blocks of one sequence, adjacent and in order, have become reusable."""

    block_hashes: tuple[EventHash, ...]
    parent_block_hash: EventHash | None
    """Hash of the block before the first one; None where that begins the sequence."""
    token_ids: TokenIds
    """`[len(block_hashes) * block_size]`; empty from tiers that know hashes only."""
    block_size: int
    """In tokens; 0 where there are no token ids."""
    extra_keys: _ExtraKeys | None = None
    """Per block what was hashed beside its tokens, untagged (`ChainBuilder.extra_keys`).
    None: the publisher does not tell, which does not mean that there is nothing."""
    lora_id: int | None = None
    lora_name: str | None = None
    medium: str = "GPU"
    """`GPU`, `CPU` or `STORAGE`."""
    group_idx: int | None = 0
    """Which of a hybrid model's pools; models of one kind of attention have only pool 0."""
    kv_cache_spec_kind: str | None = "full_attention"
    cache_salt: str | None = None
    """Salt of the whole sequence where a publisher names it apart: SGLang does, we do not."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockStored) and _comparable(self) == _comparable(other)

    __hash__ = None  # type: ignore[assignment]  # token ids are an array


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Blocks are no longer reusable. Stored twice and removed once, one copy is left."""

    block_hashes: tuple[EventHash, ...]
    medium: str = "GPU"
    group_idx: int | None = 0


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing stored before is reusable any more, in any tier."""


@dataclass(frozen=True, slots=True)
class TierBlocksCleared:
    """Nothing stored before in one tier is reusable any more; other tiers keep their copies."""

    medium: str


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event of a type this version does not know; to be counted, not to be failed on."""

    type: str


CacheEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared | TierBlocksCleared


@dataclass(frozen=True, slots=True)
class EventBatch:
    """What one step of one engine changed."""

    timestamp_s: float
    """Unix time by the publisher's clock."""
    events: tuple[CacheEvent | UnknownEvent, ...]
    dp_rank: int = 0


def encode_batch(
    events: Iterable[CacheEvent], *, timestamp_s: float, dp_rank: int = 0, int_hashes: bool = True
) -> bytes:
    """Return the payload of one batch in vLLM 0.32's form, one BlockRemoved per removed block.

    `int_hashes` publishes the last 8 bytes of each hash as a number, vLLM's default; otherwise
    all bytes are sent. Hashes that are numbers already stay as they are.
    """
    maps: list[dict[str, Any]] = []
    for event in events:
        match event:
            case BlockStored():
                maps.append(_stored_map(event, int_hashes=int_hashes))
            case BlockRemoved():
                maps += _removed_maps(event, int_hashes=int_hashes)
            case AllBlocksCleared():
                maps.append({"type": "AllBlocksCleared"})
            case TierBlocksCleared(medium):
                maps.append({"type": "TierBlocksCleared", "medium": medium})
    return msgspec.msgpack.encode([float(timestamp_s), maps, dp_rank])


def decode_batch(payload: bytes) -> EventBatch:
    """Read a batch in either form, with hashes of either kind.

    Signed numbers are taken modulo 2**64, so that -1 and 2**64 - 1 are one hash. Unknown fields
    are ignored, unknown types become `UnknownEvent`, a missing medium is the device.
    Raises `InvalidInput`, naming the event and the field, for anything else.
    """
    if len(payload) > MAX_BATCH_BYTES:
        raise InvalidInput(
            f"an event batch has {len(payload)} bytes; at most {MAX_BATCH_BYTES} are read"
        )
    try:
        batch = _decode_frame(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(
            f"an event batch is not [timestamp, events, rank]: {error}; check that the endpoint "
            "publishes KV events"
        ) from error
    events = tuple(_decoded_event(raw, index) for index, raw in enumerate(batch.events))
    return EventBatch(batch.timestamp_s, events, batch.dp_rank or 0)


# --- writing ------------------------------------------------------------------------------------


def _stored_map(event: BlockStored, *, int_hashes: bool) -> dict[str, Any]:
    """Return the fields in vLLM's order; those after `lora_name` are left out where None."""
    parent = event.parent_block_hash
    fields: dict[str, Any] = {
        "type": "BlockStored",
        "block_hashes": _wire_hashes(event.block_hashes, int_hashes=int_hashes),
        "parent_block_hash": None if parent is None else _wire_hash(parent, int_hashes=int_hashes),
        "token_ids": event.token_ids.tolist(),
        "block_size": event.block_size,
        "lora_id": event.lora_id,
        "medium": event.medium,
        "lora_name": event.lora_name,
        "extra_keys": event.extra_keys,
        "group_idx": event.group_idx,
        "kv_cache_spec_kind": event.kv_cache_spec_kind,
    }
    for name in ("extra_keys", "group_idx", "kv_cache_spec_kind"):
        if fields[name] is None:
            del fields[name]
    return fields


def _removed_maps(event: BlockRemoved, *, int_hashes: bool) -> list[dict[str, Any]]:
    group = {} if event.group_idx is None else {"group_idx": event.group_idx}
    return [
        {"type": "BlockRemoved", "block_hashes": [block_hash], "medium": event.medium} | group
        for block_hash in _wire_hashes(event.block_hashes, int_hashes=int_hashes)
    ]


def _wire_hashes(hashes: Sequence[EventHash], *, int_hashes: bool) -> list[EventHash]:
    return [_wire_hash(block_hash, int_hashes=int_hashes) for block_hash in hashes]


def _wire_hash(block_hash: EventHash, *, int_hashes: bool) -> EventHash:
    if int_hashes and isinstance(block_hash, bytes):
        return int.from_bytes(block_hash[-8:], "big")
    return block_hash


def _comparable(event: BlockStored) -> tuple[object, ...]:
    return tuple(
        value.tolist() if isinstance(value, np.ndarray) else value for value in astuple(event)
    )


# --- reading ------------------------------------------------------------------------------------

_Hash: TypeAlias = int | Annotated[bytes, Meta(min_length=1, max_length=64)]
_TokenId: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Frame(msgspec.Struct, array_like=True):
    timestamp_s: float
    events: list[msgspec.Raw]
    dp_rank: Annotated[int, Meta(ge=0)] | None = None


class _MapHead(msgspec.Struct):
    type: str


class _ArrayHead(msgspec.Struct, array_like=True):
    type: str


class _StoredFields(msgspec.Struct):
    block_hashes: list[_Hash]
    parent_block_hash: _Hash | None
    token_ids: list[_TokenId] | None  # null where only hashes are known
    block_size: Annotated[int, Meta(ge=0)] | None
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | dict[str, Any] | None = None  # a map with the salt in SGLang's array form
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class _StoredArray(_StoredFields, array_like=True, tag="BlockStored"):
    pass


class _StoredMap(_StoredFields, tag="BlockStored"):
    cache_salt: str | None = None  # SGLang; not in the array, where it would have a position


class _RemovedMap(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[_Hash]
    medium: str | None = None
    group_idx: int | None = None


class _RemovedArray(_RemovedMap, array_like=True, tag="BlockRemoved"):
    pass


class _TierClearedMap(msgspec.Struct, tag="TierBlocksCleared"):
    medium: str | None = None


class _TierClearedArray(_TierClearedMap, array_like=True, tag="TierBlocksCleared"):
    pass


_decode_frame = msgspec.msgpack.Decoder(_Frame).decode
_DECODERS: dict[tuple[str, bool], msgspec.msgpack.Decoder[Any]] = {
    ("BlockStored", False): msgspec.msgpack.Decoder(_StoredMap),
    ("BlockStored", True): msgspec.msgpack.Decoder(_StoredArray),
    ("BlockRemoved", False): msgspec.msgpack.Decoder(_RemovedMap),
    ("BlockRemoved", True): msgspec.msgpack.Decoder(_RemovedArray),
    ("TierBlocksCleared", False): msgspec.msgpack.Decoder(_TierClearedMap),
    ("TierBlocksCleared", True): msgspec.msgpack.Decoder(_TierClearedArray),
}
_map_head = msgspec.msgpack.Decoder(_MapHead).decode
_array_head = msgspec.msgpack.Decoder(_ArrayHead).decode


def _decoded_event(raw: msgspec.Raw, index: int) -> CacheEvent | UnknownEvent:
    try:
        return _event(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InvalidInput(
            f"event {index} of a batch cannot be read: {error}; treat what this source holds "
            "as unknown until its next clear or restart"
        ) from error


def _event(raw: msgspec.Raw) -> CacheEvent | UnknownEvent:
    is_array = _is_array(raw)
    event_type = (_array_head if is_array else _map_head)(raw).type
    if event_type == "AllBlocksCleared":
        return AllBlocksCleared()
    decoder = _DECODERS.get((event_type, is_array))
    if decoder is None:
        return UnknownEvent(event_type[:64])
    wire = decoder.decode(raw)
    if isinstance(wire, _TierClearedMap):  # or its array form
        return TierBlocksCleared("GPU" if wire.medium is None else wire.medium)
    hashes = tuple(_normalised(block_hash) for block_hash in wire.block_hashes)
    medium = "GPU" if wire.medium is None else wire.medium
    if isinstance(wire, _RemovedMap):  # or its array form
        return BlockRemoved(hashes, medium, wire.group_idx)
    return _stored(wire, hashes, medium)


def _is_array(raw: msgspec.Raw) -> bool:
    """Tell by the first byte: fixarray, array 16 or array 32."""
    first = bytes(memoryview(raw)[:1])[0]
    return 0x90 <= first <= 0x9F or first in {0xDC, 0xDD}


def _stored(wire: _StoredFields, hashes: tuple[EventHash, ...], medium: str) -> BlockStored:
    token_ids, block_size = wire.token_ids or [], wire.block_size or 0
    num_blocks, num_tokens = len(hashes), len(token_ids)
    if num_tokens not in {0, num_blocks * block_size}:
        raise ValueError(f"{num_tokens} token ids for {num_blocks} blocks of {block_size} tokens")
    if wire.extra_keys is not None and len(wire.extra_keys) != num_blocks:
        raise ValueError(f"{len(wire.extra_keys)} extra keys for {num_blocks} blocks")
    beside = wire.lora_name if isinstance(wire.lora_name, dict) else {}
    salt = beside.get("cache_salt", wire.cache_salt if isinstance(wire, _StoredMap) else None)
    if salt is not None and not isinstance(salt, str):
        raise ValueError(f"a cache_salt of type {type(salt).__name__}")
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=(
            None if wire.parent_block_hash is None else _normalised(wire.parent_block_hash)
        ),
        token_ids=np.array(token_ids, np.int32),
        block_size=block_size,
        extra_keys=_as_tuples(wire.extra_keys),
        lora_id=wire.lora_id,
        lora_name=None if isinstance(wire.lora_name, dict) else wire.lora_name,
        medium=medium,
        group_idx=wire.group_idx,
        kv_cache_spec_kind=wire.kv_cache_spec_kind,
        cache_salt=salt,
    )


def _normalised(block_hash: bytes | int) -> EventHash:
    if isinstance(block_hash, bytes):
        return BlockHash(block_hash)
    return block_hash % 2**64


def _as_tuples(keys: list[list[Any] | None] | None) -> _ExtraKeys | None:
    if keys is None:
        return None
    return tuple(
        None
        if block is None
        else tuple(tuple(key) if isinstance(key, list) else key for key in block)
        for block in keys
    )
