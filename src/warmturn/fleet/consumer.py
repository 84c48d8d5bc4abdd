"""KV events of a whole fleet: payloads in, the index kept true, replays asked for.

Sockets are the gateway's: it calls `connect` after subscribing, `receive` for each live batch, and
answers a `ReplayRequest` with `replayed` for each batch and `replay_ended`. A request may come
from any of these calls, and is always to be answered, if only with `answered=False`.
"""

from warmturn.cache.events import EventBatch, decode_batch
from warmturn.errors import InvalidInput
from warmturn.fleet.announced import AnnouncedBlocks
from warmturn.fleet.chain import IndexHashes
from warmturn.fleet.index import FleetIndex, Matches, PrefixMatch
from warmturn.fleet.sequence import Received, ReplayRequest, SourceState
from warmturn.fleet.sources import SourceId
from warmturn.types import ReplicaId

__all__ = ["AnnouncedMatches", "FleetConsumer"]

MAX_RANKS = 256
"""Sources of one replica: a garbled rank must not open a new one with every batch."""


class AnnouncedMatches:
    """What each source can use of one chain; to be asked before the next event is applied."""

    def __init__(
        self, chain: IndexHashes, matches: Matches, sources: dict[SourceId, AnnouncedBlocks]
    ) -> None:
        self._chain, self._matches, self._sources = chain, matches, sources

    def of(self, source: SourceId) -> PrefixMatch:
        """Return what `source` can use; nothing where it was never heard of."""
        known, match = self._sources.get(source), self._matches.of(source)
        return match if known is None else known.held(self._chain, match)


class FleetConsumer:
    """The sources of one base model, each with its own order and its own blocks."""

    def __init__(self, index: FleetIndex) -> None:
        self.index = index
        self.num_decode_errors = 0
        self._sources: dict[SourceId, AnnouncedBlocks] = {}
        self._start_s: dict[ReplicaId, float] = {}

    @property
    def sources(self) -> tuple[SourceId, ...]:
        """Every source heard of, in order of the first contact."""
        return tuple(self._sources)

    def announced(self, source: SourceId) -> AnnouncedBlocks | None:
        """Return what a source announced and its counters; None before the first contact."""
        return self._sources.get(source)

    def state(self, source: SourceId) -> SourceState:
        """Return how much of what the source holds is known."""
        known = self._sources.get(source)
        return SourceState.UNKNOWN if known is None else known.order.state

    def match(self, chain: IndexHashes) -> "AnnouncedMatches":
        """Return how many leading blocks of `chain [n]` each source can use.

        What `FleetIndex.match` says, less what a hybrid model's windowed groups no longer have.
        """
        return AnnouncedMatches(chain, self.index.match(chain), self._sources)

    def connect(self, source: SourceId, *, max_blocks: int | None = None) -> ReplayRequest:
        """Follow a source whose live socket is subscribed, from its beginning if it can replay.

        `max_blocks` is what it can hold in all tiers, where that is known.
        Raises `InvalidInput` for a limit below 1, or more than `MAX_RANKS` ranks of one replica.
        """
        known = self._known(source)
        if max_blocks is not None:
            self.index.add_source(source, max_blocks=max_blocks)
        return known.order.connect()

    def receive(
        self, replica: ReplicaId, seq: int, payload: bytes, *, socket_rank: int = 0
    ) -> Received:
        """Take one live batch. The rank in the payload counts, not the socket it came from.

        A payload that cannot be decoded is counted and makes the socket's source unknown: it is
        not the same as a source that holds nothing.
        """
        batch = self._decoded(payload)
        rank = socket_rank if batch is None else batch.dp_rank
        try:
            known = self._known(SourceId(replica, rank))
        except InvalidInput:
            self.num_decode_errors += 1
            known, batch = self._known(SourceId(replica, socket_rank)), None
        return known.order.receive(seq, batch)

    def replayed(self, request: ReplayRequest, seq: int, payload: bytes) -> None:
        """Take one batch of the answer to `request`; batches of other ranks are ignored."""
        batch = self._decoded(payload)
        known = self._sources.get(request.source)
        if known is not None and (batch is None or batch.dp_rank == request.source.rank):
            known.order.replayed(request, seq, batch)

    def replay_ended(self, request: ReplayRequest, *, answered: bool) -> ReplayRequest | None:
        """The answer is complete, or will not come. Returns what to ask for next, if anything."""
        known = self._sources.get(request.source)
        return None if known is None else known.order.replay_ended(request, answered=answered)

    def observe_start(self, replica: ReplicaId, start_s: float) -> list[ReplayRequest]:
        """Note `process_start_time_seconds` of a replica; a later one than before is a restart.

        A restart seen in the numbers before is not one again. Returns what to ask for.
        """
        known = self._start_s.get(replica)
        self._start_s[replica] = start_s
        sources = self._of(replica)
        unnoticed = [s for s in sources if not s.order.restarted_since_start_seen]
        for source in sources:
            source.order.restarted_since_start_seen = False
        if known is None or start_s <= known:
            return []
        return [source.order.restart() for source in unnoticed]

    def restarted(self, replica: ReplicaId) -> list[ReplayRequest]:
        """A replica is known to have begun again (health went down and up): forget all of it."""
        return [source.order.restart() for source in self._of(replica)]

    def purge(self, replica: ReplicaId) -> None:
        """A replica sleeps, or was told to reset its cache: what it held is gone already.

        Its clear event comes only with its next step. The numbers go on, so the state stays.
        """
        for source in self._of(replica):
            source.forget()

    def remove_replica(self, replica: ReplicaId) -> None:
        """Forget a replica with all its ranks and tiers."""
        for source in self._of(replica):
            source.forget()
            self.index.remove_source(source.source)
            del self._sources[source.source]
        self._start_s.pop(replica, None)

    def distrust(self, source: SourceId) -> None:
        """Delivered hits collapsed: exact becomes degraded, anything else unknown.

        Only a clear or a restart ends that; `restarted` forgets and asks for everything again.
        """
        known = self._sources.get(source)
        if known is None:
            return
        if known.order.state is SourceState.EXACT:
            known.order.degrade()
        else:
            known.order.distrust()

    def _of(self, replica: ReplicaId) -> list[AnnouncedBlocks]:
        return [known for source, known in self._sources.items() if source.replica == replica]

    def _known(self, source: SourceId) -> AnnouncedBlocks:
        known = self._sources.get(source)
        if known is None:
            if len(self._of(source.replica)) >= MAX_RANKS:
                raise InvalidInput(
                    f"source {source}: {source.replica} has {MAX_RANKS} ranks already; "
                    "check what publishes on its port"
                )
            self.index.add_source(source)
            known = self._sources[source] = AnnouncedBlocks(source, self.index)
        return known

    def _decoded(self, payload: bytes) -> EventBatch | None:
        try:
            return decode_batch(payload)
        except InvalidInput:
            self.num_decode_errors += 1
            return None
