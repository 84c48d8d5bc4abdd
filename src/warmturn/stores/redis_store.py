"""A shared tier in Redis or Valkey: one value per block, with a header that says whose it is.

    warmturn:<namespace>:<first 16 hex digits of the fingerprint>:<block hash in hex>

Values expire after `ttl_s` without use by us; what the server does when its memory is full is its
own `maxmemory-policy` (`allkeys-lru` suits). Every call has a time-out.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from warmturn.cache.fingerprint import Digest
from warmturn.cache.record import (
    HEADER_BYTES,
    Bytes,
    record_checksum,
    record_header,
    record_problem,
)
from warmturn.cache.transfers import Outcome
from warmturn.errors import InvalidInput, MissingExtra, PeerError
from warmturn.types import BlockHash

__all__ = ["RedisStore"]

log = logging.getLogger(__name__)

BATCH_BYTES = 8 * 2**20
"""Of one round trip: enough that its latency does not count, and far from any time-out."""


class RedisStore:
    """Blocks of one fingerprint in one namespace of a Redis server. Threads may share it."""

    def __init__(
        self,
        url: str,
        owner: Digest,
        *,
        namespace: str = "default",
        ttl_s: float | None = 24 * 3600.0,
        timeout_s: float = 1.0,
        verifies: bool = True,
    ) -> None:
        """`url` as the redis package takes it: redis://, rediss:// or unix://.

        Nothing is sent yet. Raises `MissingExtra`, and `InvalidInput` for a URL it cannot read.
        """
        try:
            from redis import Redis  # noqa: PLC0415 - an extra
            from redis.backoff import NoBackoff  # noqa: PLC0415
            from redis.retry import Retry  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise MissingExtra("a shared tier in Redis", extra="redis") from error
        try:
            self._client: Redis = Redis.from_url(
                url,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                retry=Retry(NoBackoff(), 0),  # the circuit breaker decides when to try again
            )
        except ValueError as error:
            raise InvalidInput(f"--shared-tier: {error}") from error
        self._owner = owner
        self._prefix = f"warmturn:{namespace}:{owner.hex()[:16]}:"
        self._ttl_ms = None if ttl_s is None else max(1, round(ttl_s * 1000))
        self._verifies = verifies

    def ping(self) -> None:
        """Ask the server whether it is there. Raises `PeerError`."""
        with _as_peer_errors():
            self._client.ping()

    def contains(self, keys: Sequence[BlockHash]) -> list[bool]:
        """Tell for each block whether the server has it, in one round trip. Raises `PeerError`."""
        with _as_peer_errors(), self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.exists(self._name(key))
            return [bool(answer) for answer in pipe.execute()]

    def write(
        self, keys: Sequence[BlockHash], blocks: Sequence[Bytes], checksums: Sequence[int]
    ) -> None:
        """Send blocks, a batch per round trip. Raises `PeerError`; some may be there then."""
        for batch in _batches([len(block) for block in blocks]):
            with _as_peer_errors(), self._client.pipeline(transaction=False) as pipe:
                for key, block, checksum in zip(
                    keys[batch], blocks[batch], checksums[batch], strict=True
                ):
                    size = len(block)
                    header = record_header(key, self._owner, payload_bytes=size, checksum=checksum)
                    pipe.set(self._name(key), header + block.data, px=self._ttl_ms)
                pipe.execute()

    def read(
        self, keys: Sequence[BlockHash], targets: Sequence[Bytes]
    ) -> list[tuple[Outcome, int]]:
        """Fetch blocks into `targets`, a batch per round trip.

        A value that is not that block is deleted. Raises `PeerError`.
        """
        fetched: list[tuple[Outcome, int]] = []
        for batch in _batches([len(target) for target in targets]):
            values: Sequence[bytes | str | None] = ()
            with _as_peer_errors():
                values = self._client.mget([self._name(key) for key in keys[batch]])
            fetched += [
                self._take(key, value, target)
                for key, value, target in zip(keys[batch], values, targets[batch], strict=True)
            ]
        return fetched

    def _take(
        self, key: BlockHash, value: bytes | str | None, target: Bytes
    ) -> tuple[Outcome, int]:
        if value is None:
            return Outcome.MISSING, 0
        assert isinstance(value, bytes), "the client decodes nothing"
        header, payload = value[:HEADER_BYTES], memoryview(value)[HEADER_BYTES:]
        problem = record_problem(header, payload, key, self._owner, verify=self._verifies)
        if problem is None and len(payload) != len(target):
            problem = f"{len(payload)} bytes instead of {len(target)}"
        if problem is None:
            np.copyto(target, np.frombuffer(payload, np.uint8))
            return Outcome.OK, record_checksum(header)
        log.warning("shared tier: block %s: %s", key.hex()[:12], problem)
        with _as_peer_errors():
            self._client.delete(self._name(key))
        return Outcome.WRONG, 0

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _name(self, key: BlockHash) -> str:
        return self._prefix + key.hex()


def _batches(sizes: Sequence[int]) -> Iterator[slice]:
    """Cut blocks of these sizes into runs of at most `BATCH_BYTES`, one block at least."""
    start, num_bytes = 0, 0
    for stop, size in enumerate(sizes):
        if stop > start and num_bytes + size > BATCH_BYTES:
            yield slice(start, stop)
            start, num_bytes = stop, 0
        num_bytes += size
    if start < len(sizes):
        yield slice(start, len(sizes))


@contextmanager
def _as_peer_errors() -> Iterator[None]:
    from redis import RedisError  # noqa: PLC0415 - an extra, there by now

    try:
        yield
    except (RedisError, OSError) as error:
        raise PeerError(f"the shared tier in Redis does not answer: {error}") from error
