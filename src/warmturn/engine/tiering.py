"""The embedded engine's tiers: opened from options, on the pool's memory."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import xxhash
from torch import Tensor

from warmturn.cache.fingerprint import Digest, Fingerprint
from warmturn.cache.record import Bytes
from warmturn.cache.tiers import TierManager
from warmturn.cache.transfers import Done
from warmturn.engine.model_config import ModelConfig
from warmturn.errors import InvalidInput, PeerError
from warmturn.stores.arena import HostArena, stride_of
from warmturn.stores.mover import DeviceMemory, Mover, SharedStore
from warmturn.stores.opening import DiskSpec, open_shared
from warmturn.stores.redis_store import RedisStore
from warmturn.stores.slab import DiskSlab

__all__ = ["TierOptions", "Tiering", "device_memory", "fingerprint_of"]

log = logging.getLogger(__name__)

STAGING_BYTES = 64 * 2**20
"""Host memory that blocks pass through where no host tier is asked for."""
MIN_STAGING_SLOTS = 64


@dataclass(frozen=True, slots=True)
class TierOptions:
    """What `warmturn engine` takes for its tiers."""

    host_bytes: int | None = None
    disk: DiskSpec | None = None
    shared_url: str | None = None
    verifies: bool = True
    """Off only to see what checksums cost, and tests fail without them."""

    @property
    def is_any(self) -> bool:
        """True where there is a tier at all."""
        return (self.host_bytes, self.disk, self.shared_url) != (None, None, None)


class Tiering:
    """All tiers of one engine. `manager` goes to the replica, `start_mover` to the loop."""

    def __init__(
        self, options: TierOptions, device: DeviceMemory, fingerprint: Fingerprint, block_bytes: int
    ) -> None:
        """Allocate and open everything. Raises `InvalidInput`, `MissingExtra`.

        A shared store that does not answer is a warning: it may come back.
        """
        self._device = device
        owner = fingerprint.digest
        num_slots = _host_slots(options.host_bytes, block_bytes)
        self._shared = _open_shared(options, owner)
        self._disk: DiskSlab | None = None
        if options.disk is not None:
            self._disk = DiskSlab(
                options.disk.folder,
                num_bytes=options.disk.num_bytes,
                block_bytes=block_bytes,
                fingerprint=fingerprint,
                verifies=options.verifies,
            )
        self._arena = HostArena(num_slots, block_bytes, owner, verifies=options.verifies)
        self.manager = TierManager(
            block_bytes=block_bytes,
            block_size=fingerprint.block_size,
            host_slots=num_slots,
            disk_slots=None if self._disk is None else self._disk.num_slots,
            has_shared=self._shared is not None,
        )
        if self._disk is not None:
            found = self._disk.found()
            self.manager.restore_disk(found)
            log.info("disk tier %s: %d blocks found", self._disk.folder, len(found))
        self.facts = {
            "host_blocks": num_slots if options.host_bytes is not None else 0,
            "staging_blocks": num_slots if options.host_bytes is None else 0,
            "disk_blocks": 0 if self._disk is None else self._disk.num_slots,
            "shared_tier": self._shared is not None,
        }

    def start_mover(self, on_done: Callable[[Done], None]) -> Mover:
        """Start the threads that carry out orders."""
        return Mover(
            self._arena, self._device, on_done=on_done, disk=self._disk, shared=self._shared
        )


def _host_slots(host_bytes: int | None, block_bytes: int) -> int:
    stride = stride_of(block_bytes)
    if host_bytes is None:
        return max(STAGING_BYTES // stride, MIN_STAGING_SLOTS)
    if host_bytes < stride:
        raise InvalidInput(
            f"a host tier of {host_bytes:,} bytes was asked for; one block takes {stride:,}: "
            "raise --host-tier"
        )
    return host_bytes // stride


def _open_shared(options: TierOptions, owner: Digest) -> SharedStore | None:
    if options.shared_url is None:
        return None
    store = open_shared(options.shared_url, owner, verifies=options.verifies)
    if isinstance(store, RedisStore):
        try:
            store.ping()
        except PeerError as error:
            log.warning("%s; the engine serves without it until it does", error)
    return store


def fingerprint_of(
    directory: Path,
    config: ModelConfig,
    *,
    model_name: str,
    dtype: torch.dtype,
    block_size: int,
    hash_scheme: str,
) -> Fingerprint:
    """Return the identity of what an engine computes; reads all weights once."""
    return Fingerprint(
        model=model_name,
        weights=_weights_digest(directory, config),
        kv_dtype=str(dtype).removeprefix("torch."),
        layout="layers,2,kv_heads,block_size,head_dim",
        block_size=block_size,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rope=f"{config.rope_theta} {config.rope_scaling}",
        hash_scheme=hash_scheme,
    )


def _weights_digest(directory: Path, config: ModelConfig) -> str:
    """Digest the files' content, not their names or times: 0.1 s per GB from the page cache."""
    digest = xxhash.xxh3_128(repr(config).encode())
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            while chunk := file.read(1 << 24):
                digest.update(chunk)
    return digest.hexdigest()


def device_memory(tensor: Tensor) -> DeviceMemory:
    """Return the pool's memory `[num_blocks, ...]` for copying whole blocks."""
    return _HostMemory(tensor) if tensor.device.type == "cpu" else _CudaMemory(tensor)


class _HostMemory:
    """The pool in ordinary memory: numpy copies without holding Python's lock."""

    def __init__(self, tensor: Tensor) -> None:
        self._blocks = tensor.view(torch.uint8).numpy().reshape(tensor.shape[0], -1)

    def copy_out(self, block: int, target: Bytes) -> None:
        np.copyto(target, self._blocks[block])

    def copy_in(self, block: int, source: Bytes) -> None:
        np.copyto(self._blocks[block], source)


class _CudaMemory:
    """The pool on a GPU, copied on a stream of its own; a copy is over when the call returns."""

    def __init__(self, tensor: Tensor) -> None:
        self._blocks = tensor.view(torch.uint8).reshape(tensor.shape[0], -1)
        self._stream = torch.cuda.Stream(tensor.device)  # type: ignore[no-untyped-call]

    def copy_out(self, block: int, target: Bytes) -> None:
        with torch.cuda.stream(self._stream):
            torch.from_numpy(target).copy_(self._blocks[block], non_blocking=True)
            self._stream.synchronize()

    def copy_in(self, block: int, source: Bytes) -> None:
        with torch.cuda.stream(self._stream):
            self._blocks[block].copy_(torch.from_numpy(source), non_blocking=True)
            self._stream.synchronize()
