"""The decision log: JSON lines from which every decision can be made again. No text, no salts.

    ["warmturn decisions", 1]                              first line of each file
    ["s", index, replica, rank]                            a source, before its first use
    ["d", at_s, request, candidates, decision, content]    one decision
    ["e", number, tokens, ttft_s]                          the end of request `number`

    request     [session, prompt_tokens, number, last source, is_first_turn, turns_left]
    candidates  [[source, field, value, field, value ...] ...]: what changed since its last line
    decision    [policy, source, reason, predicted_tokens, digest of prices and reasons]
    content     [number of the parent request, its blocks, new block hashes], or null
    tokens      [prompt, cached, completion], each null where the answer did not say

Block hashes are keyed with a secret of the writing process: equal within one log, meaningless to
who knows the texts. Each file can be read by itself.
"""

import hashlib
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from warmturn.errors import InvalidInput
from warmturn.fleet import LearnedRates, LoadView, SourceId
from warmturn.fleet.chain import IndexHashes
from warmturn.router.replay import DecisionRecord, DecisionSummary, summary_of
from warmturn.router.views import Candidate, PrefixHit, RoutingRequest
from warmturn.types import ReplicaId

__all__ = ["Content", "DecisionLogWriter", "TurnEnd", "read_decision_log"]

_HEAD = ["warmturn decisions", 1]
_MAX_PARENTS = 65_536
"""Sessions whose last blocks are remembered, some 10 MB; others are logged in full again."""
_HASH_BYTES = 8

_Fields: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """What a prompt consists of, as far as equality goes."""

    parent: int | None
    """Number of the session's request before, whose blocks all lead this prompt."""
    num_parent_blocks: int
    blocks: tuple[bytes, ...]
    """Keyed hashes of the further ones."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """What an answer told."""

    number: int
    """Of the request."""
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    ttft_s: float | None


class DecisionLogWriter:
    """Records to lines. Begins anew with each file: call `begin` for its first line."""

    def __init__(self, *, key: bytes) -> None:
        """`key`: secret bytes, at most 64."""
        self._key = key
        self._sources: dict[SourceId, int] = {}
        self._views: dict[SourceId, _Fields] = {}
        self._parents: OrderedDict[str, tuple[int, int, int]] = OrderedDict()

    def begin(self) -> bytes:
        """Return a file's first line, and forget what the file before had."""
        self._sources.clear()
        self._views.clear()
        self._parents.clear()
        return _line(_HEAD)

    def decision(self, record: DecisionRecord, chain: IndexHashes | None = None) -> bytes:
        """Return the lines of one decision; `chain` are the hashes of its prompt's blocks."""
        asked, lines = record.request, bytearray()
        candidates = [self._changes(view, lines) for view in record.candidates]
        summary = summary_of(record.decision)
        chosen = self._index(summary.source, lines)
        last = self._index(asked.last_source, lines)
        request = [
            *(asked.session, asked.prompt_tokens, asked.number, last),
            *(asked.is_first_turn, asked.turns_left),
        ]
        made = [summary.policy, chosen, summary.reason, summary.predicted_tokens, summary.digest]
        content = None if chain is None else self._content(asked, chain)
        lines += _line(["d", record.at_s, request, candidates, made, content])
        return bytes(lines)

    def end(self, end: TurnEnd) -> bytes:
        """Return the line of one answer."""
        tokens = [end.prompt_tokens, end.cached_tokens, end.completion_tokens]
        return _line(["e", end.number, tokens, end.ttft_s])

    def _index(self, source: SourceId | None, lines: bytearray) -> int | None:
        if source is None:
            return None
        index = self._sources.get(source)
        if index is None:
            index = self._sources[source] = len(self._sources)
            lines += _line(["s", index, source.replica, source.rank])
        return index

    def _changes(self, view: Candidate, lines: bytearray) -> list[Any]:
        index = self._index(view.source, lines)
        new = _flat(view)
        old = self._views.get(view.source)
        self._views[view.source] = new
        changes: list[Any] = [index]
        for place, value in enumerate(new):
            if old is None or old[place] != value:
                changes += (place, value)
        return changes

    def _content(self, asked: RoutingRequest, chain: IndexHashes) -> list[Any]:
        """A hash stands for all blocks up to it, so that one comparison finds the parent."""
        parent, shared = None, 0
        before = self._parents.pop(asked.session, None)
        if before is not None and before[1] <= len(chain) and chain[before[1] - 1] == before[2]:
            parent, shared = before[0], before[1]
        if len(chain):
            self._parents[asked.session] = asked.number, len(chain), int(chain[-1])
        if len(self._parents) > _MAX_PARENTS:
            self._parents.popitem(last=False)
        raw, blake2b = chain[shared:].tobytes(), hashlib.blake2b
        keyed = b"".join(
            blake2b(raw[at : at + 8], key=self._key, digest_size=_HASH_BYTES).digest()
            for at in range(0, len(raw), 8)
        )
        return [parent, shared, b64encode(keyed).decode()]


def read_decision_log(
    lines: Iterable[bytes],
) -> Iterator[tuple[DecisionRecord, Content | None] | TurnEnd]:
    """Read one file's lines. Raises `InvalidInput` naming the line that cannot be read."""
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        try:
            entry = reader.read(line, is_first=number == 1)
        except (ValueError, TypeError, LookupError, msgspec.MsgspecError) as error:
            raise InvalidInput(
                f"line {number} of the decision log cannot be read: {error}; "
                "it has to be a file that this version wrote"
            ) from error
        if entry is not None:
            yield entry


class _Reader:
    """What the lines so far have told of sources and views."""

    def __init__(self) -> None:
        self._sources: list[SourceId] = []
        self._views: dict[SourceId, list[Any]] = {}

    def read(
        self, line: bytes, *, is_first: bool
    ) -> tuple[DecisionRecord, Content | None] | TurnEnd | None:
        entry = _decode(line)
        if is_first and entry != _HEAD:
            raise ValueError("it does not begin with this version's first line")
        match entry:
            case ["s", int(index), str(replica), int(rank)] if index == len(self._sources):
                self._sources.append(SourceId(ReplicaId(replica), rank))
            case ["d", at_s, asked, candidates, made, content]:
                record = DecisionRecord(
                    at_s, self._request(*asked), self._candidates(candidates), self._summary(*made)
                )
                return record, _read_content(content)
            case ["e", int(number), [prompt, cached, completion], ttft_s]:
                return TurnEnd(number, prompt, cached, completion, ttft_s)
            case _ if not is_first:
                raise ValueError("no such entry")
        return None

    def _source(self, index: int | None) -> SourceId | None:
        return None if index is None else self._sources[index]

    def _request(
        self,
        session: str,
        prompt_tokens: int,
        number: int,
        last: int | None,
        is_first: bool,
        turns_left: float,
    ) -> RoutingRequest:
        last_source = self._source(last)
        return RoutingRequest(session, prompt_tokens, number, last_source, is_first, turns_left)

    def _candidates(self, candidates: list[list[Any]]) -> tuple[Candidate, ...]:
        found = []
        for index, *changes in candidates:
            source = self._sources[index]
            fields = self._views.setdefault(source, [None] * _NUM_FIELDS)
            for place, value in zip(changes[::2], changes[1::2], strict=True):
                fields[place] = value
            found.append(_candidate(source, fields))
        return tuple(found)

    def _summary(
        self, policy: str, chosen: int | None, reason: str, predicted_tokens: int, digest: str
    ) -> DecisionSummary:
        return DecisionSummary(policy, self._source(chosen), reason, predicted_tokens, digest)


def _read_content(content: list[Any] | None) -> Content | None:
    if content is None:
        return None
    parent, shared, text = content
    keyed = b64decode(text, validate=True)
    starts = range(0, len(keyed), _HASH_BYTES)
    return Content(parent, shared, tuple(keyed[at : at + _HASH_BYTES] for at in starts))


_NUM_FIELDS = 17


def _flat(view: Candidate) -> _Fields:
    """A candidate's fields in the order of the log; `_candidate` is its inverse."""
    load, hit, rates = view.load, view.hit, view.rates
    return (
        *(view.is_alive, view.weight, view.capacity_tokens),
        *(load.num_running, load.smoothed_requests),
        *(load.queued_prefill_tokens, load.session_tokens),
        *(hit.device_tokens, hit.near_tokens, hit.any_tokens),
        *(view.trust, view.survival),
        *(rates.s_per_token, rates.s_per_running, rates.base_s),
        *(view.host_tokens_per_s, view.storage_tokens_per_s),
    )


def _candidate(source: SourceId, fields: list[Any]) -> Candidate:
    alive, weight, capacity = fields[:3]
    trust, survival = fields[10:12]
    host, storage = fields[15:]
    return Candidate(
        source,
        is_alive=alive,
        weight=weight,
        capacity_tokens=capacity,
        load=LoadView(*fields[3:7]),
        hit=PrefixHit(*fields[7:10]),
        trust=trust,
        survival=survival,
        rates=LearnedRates(*fields[12:15]),
        host_tokens_per_s=host,
        storage_tokens_per_s=storage,
    )


def _line(entry: list[Any]) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


_decode = msgspec.json.Decoder().decode
