"""What one source's events mean for the index."""

from collections import Counter, deque
from dataclasses import astuple

import numpy as np
import xxhash

from warmturn.cache.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    EventHash,
    TierBlocksCleared,
    UnknownEvent,
)
from warmturn.fleet.chain import IndexHashes, extend_chain, mix, root_of
from warmturn.fleet.index import FleetIndex, PrefixMatch
from warmturn.fleet.sequence import EventSequence
from warmturn.fleet.sources import GroupId, Holder, SourceId
from warmturn.fleet.tiers import Tier, tier_named

__all__ = ["AnnouncedBlocks"]

_MAX_REMEMBERED = 1024
"""Unresolved hashes and unknown event types kept for reports; the counts go on."""

_WHOLE_PREFIX_KINDS = frozenset({None, "full_attention", "mla_attention", "mla"})
"""Kinds of attention that need every block of a prefix. Windowed and recurrent layers do not, and
their removals say nothing about the prefix."""


class AnnouncedBlocks:
    """Applies one source's batches to the index, and counts what could not be used.

    A hybrid model announces each group of its layers apart, under equal hashes. One group with whole
    prefixes is followed as the source itself. Of windowed and recurrent groups only a prefix's last
    block is asked for, so they are kept beside it: mixed in, their evictions would poison the index.
    """

    def __init__(self, source: SourceId, index: FleetIndex) -> None:
        self.source = source
        self.block_size: int | None = None
        """In tokens, as announced; None while there are no blocks with tokens."""
        self.unresolved_hashes: deque[EventHash] = deque(maxlen=_MAX_REMEMBERED)
        """Announced without tokens and never seen before, the latest last."""
        self.num_unresolved = 0
        self.unknown_events: Counter[str] = Counter()
        """By type."""
        self.num_skipped_events = 0
        """Of a second group with whole prefixes, of another block size, or of unknown blocks of a
        windowed group."""
        self.num_overflows = 0
        """How often it announced more than it can hold, and was forgotten."""
        self.order = EventSequence(source, apply=self.apply, forget=self.forget)
        self._index = index
        self._group: int | None = None
        self._windows: dict[int, GroupId] = {}
        self._tells_keys = False

    def apply(self, batch: EventBatch) -> None:
        """Apply the events of one batch in order."""
        for event in batch.events:
            match event:
                case BlockStored():
                    self._stored(event)
                case BlockRemoved():
                    self._removed(event)
                case AllBlocksCleared():
                    self.forget()
                    self.order.cleared()
                case TierBlocksCleared(medium):
                    holders: list[Holder] = [self.source, *self._windows.values()]
                    for holder in holders:
                        self._index.clear_tier(holder, tier_named(medium))
                case UnknownEvent(name):
                    self._note_unknown(name)

    def forget(self) -> None:
        """Drop everything the source holds; a restarted engine may come with other blocks."""
        self._index.clear(self.source)
        for window in self._windows.values():
            self._index.remove_source(window)
        self.block_size = self._group = None
        self._windows = {}

    def held(self, chain: IndexHashes, match: PrefixMatch) -> PrefixMatch:
        """Return what of `match`, the source's part of a match of `chain`, all groups can use.

        The longest prefix whose last block every windowed group still has.
        """
        if not self._windows or match.anywhere == 0:
            return match
        usable = np.ones(match.anywhere, np.bool_)
        for window in self._windows.values():
            usable &= self._index.holds(window, chain[: match.anywhere])
        ends = np.flatnonzero(usable)
        most = int(ends[-1]) + 1 if len(ends) else 0
        return PrefixMatch(*(min(blocks, most) for blocks in astuple(match)))

    def _stored(self, event: BlockStored) -> None:
        if event.kv_cache_spec_kind not in _WHOLE_PREFIX_KINDS:
            self._stored_window(event)
            return
        if not self._is_followed(event):
            self.num_skipped_events += 1
            return
        keys = _engine_keys(event.block_hashes)
        known = self._index.names_of(self.source, keys)
        names = known if self._is_named_by_hash(event, known) else self._computed(event)
        if names is None:  # the chain before it is not known: nothing below can be trusted
            self.order.degrade()
            return
        missing = names == 0
        for index in np.flatnonzero(missing):
            self.unresolved_hashes.append(event.block_hashes[index])
        self.num_unresolved += int(missing.sum())
        self._store(keys[~missing], names[~missing], tier_named(event.medium))

    def _store(self, keys: IndexHashes, names: IndexHashes, tier: Tier) -> None:
        if len(keys) and not self._index.store(self.source, keys, names, tier):
            self.forget()
            self.order.distrust()
            self.num_overflows += 1

    def _is_followed(self, event: BlockStored) -> bool:
        """Follow one group and one block size."""
        group = event.group_idx or 0
        if self._group is None:
            self._group = group
        if group != self._group:
            return False
        if len(event.token_ids) == 0:
            return True
        if self.block_size is None:
            self.block_size = event.block_size
        return event.block_size == self.block_size

    def _is_named_by_hash(self, event: BlockStored, known: IndexHashes) -> bool:
        """Say whether the engine's hash has to tell what the block is.

        Without tokens it is all there is. Lower tiers may leave out salt and images though the
        device told them; the hash, or the parent's, still has them inside. Only where neither is
        known, and this engine does tell such things, is a block of unknown salt not credited.
        """
        if len(event.token_ids) == 0:
            return True
        has_keys = event.extra_keys is not None or event.cache_salt is not None
        self._tells_keys |= has_keys
        if has_keys or tier_named(event.medium) is Tier.DEVICE:
            return False
        return bool(known.all()) or (event.parent_block_hash is None and self._tells_keys)

    def _computed(self, event: BlockStored, holder: Holder | None = None) -> IndexHashes | None:
        """Hash the event's tokens after its parent; None where the parent is not known.

        `holder` may know parents too, beside the source itself.
        """
        if event.parent_block_hash is None:
            parent = root_of(_adapter_of(event))
        else:
            key = _engine_keys((event.parent_block_hash,))
            known = [self._index.names_of(each, key)[0] for each in (self.source, holder) if each]
            parent = int(max(known))
            if parent == 0:
                return None
        blocks = event.token_ids.reshape(len(event.block_hashes), event.block_size)
        return extend_chain(parent, blocks, _words_of(event))

    def _stored_window(self, event: BlockStored) -> None:
        """Keep blocks of a windowed group under the names the whole prefixes have."""
        window, keys = self._window(event.group_idx or 0), _engine_keys(event.block_hashes)
        names = self._index.names_of(self.source, keys)
        if not names.all() and len(event.token_ids) and self.block_size in {None, event.block_size}:
            computed = self._computed(event, window)  # before the group with whole prefixes
            names = names if computed is None else computed
        known = names != 0
        self.num_skipped_events += not known.all()
        self._index.store(window, keys[known], names[known], tier_named(event.medium))

    def _window(self, group_idx: int) -> GroupId:
        if group_idx not in self._windows:
            self._windows[group_idx] = GroupId(self.source, group_idx)
            self._index.add_source(self._windows[group_idx])
        return self._windows[group_idx]

    def _removed(self, event: BlockRemoved) -> None:
        window = self._windows.get(event.group_idx or 0)
        if window is not None:
            keys = _engine_keys(event.block_hashes)
            self._index.remove(window, keys, tier_named(event.medium))
            return
        if event.group_idx is not None and self._group not in {None, event.group_idx}:
            self.num_skipped_events += 1
            return
        keys = _engine_keys(event.block_hashes)
        self._index.remove(self.source, keys, tier_named(event.medium))

    def _note_unknown(self, name: str) -> None:
        if name in self.unknown_events or len(self.unknown_events) < _MAX_REMEMBERED:
            self.unknown_events[name] += 1


def _engine_keys(hashes: tuple[EventHash, ...]) -> IndexHashes:
    """Return 64-bit keys of an engine's hashes, spread evenly; numbers and bytes never meet."""
    words = [h if isinstance(h, int) else xxhash.xxh3_64_intdigest(h) for h in hashes]
    return np.maximum(mix(np.array(words, np.uint64)), 1)  # 0 marks an empty row


def _adapter_of(event: BlockStored) -> str | None:
    """Return the adapter's name; one known by number only gets a name no request has."""
    if event.lora_name is not None or event.lora_id is None:
        return event.lora_name
    return f"\0lora_id {event.lora_id}"


def _words_of(event: BlockStored) -> dict[int, set[str]]:
    """Return by block what was hashed beside its tokens, the adapter left out.

    Images come as `(hash, offset)`, from older engines as the hash alone; the salt as a bare word
    beside block 0 (vLLM), or named apart for the whole sequence (SGLang).
    """
    words: dict[int, set[str]] = {}
    for index, keys in enumerate(event.extra_keys or ()):
        for key in keys or ():
            word = key[0] if isinstance(key, tuple) and key else key
            if isinstance(word, str) and word != event.lora_name:
                words.setdefault(index, set()).add(word)
    if event.cache_salt and event.parent_block_hash is None:
        words.setdefault(0, set()).add(event.cache_salt)
    return words
