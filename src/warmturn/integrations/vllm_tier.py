"""Our disk and shared stores as a secondary tier of vLLM's offloading. Runs inside vLLM 0.32.

vLLM's tiering asks, in its scheduler: who has a block, write these rows, read into those rows; it
answers every failed read by computing the block. What we add to its own tiers: a checksum over
every block under its full name, a bound on size, recovery after a restart, a circuit breaker, and
a store that other replicas read. Keys are vLLM's block hashes, so salts and adapters are inside.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingSpec,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    get_offload_block_hash,
    get_offload_group_idx,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from warmturn.cache.fingerprint import Fingerprint
from warmturn.errors import InvalidInput
from warmturn.integrations.tier_jobs import TierJobs
from warmturn.stores.opening import disk_spec, open_shared
from warmturn.stores.slab import DiskSlab
from warmturn.types import BlockHash

__all__ = ["WarmturnTier", "fingerprint_of"]

_SAMPLE_BYTES = 64 * 1024


class WarmturnTier(SecondaryTierManager):
    """One store below vLLM's host tier: `disk` is PATH:SIZE, or `shared` is a URL.

    A block's row holds the parts of all workers, so a tensor-parallel engine shares blocks only
    with engines of equal size.
    """

    medium = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        disk: str | None = None,
        shared: str | None = None,
        verify: bool = True,
        lookup_timeout_s: float = 0.1,
    ) -> None:
        """`lookup_timeout_s` is how long a request waits to hear whether the shared store has it.

        `verify` off serves what was read unchecked: only for seeing what checking is for.

        Raises `InvalidInput` for a folder or URL that cannot be used, or both or none of them.
        """
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        if (disk is None) == (shared is None):
            raise InvalidInput("a WarmturnTier needs either 'disk': PATH:SIZE or 'shared': URL")
        fingerprint = fingerprint_of(offloading_spec)
        store: Any
        if disk is not None:
            asked = disk_spec(disk)
            store = DiskSlab(
                asked.folder,
                num_bytes=asked.num_bytes,
                block_bytes=self.block_size_bytes,
                fingerprint=fingerprint,
                verifies=verify,
            )
        else:
            assert shared is not None
            store = open_shared(shared, fingerprint.digest, verifies=verify)
        self._jobs = TierJobs(
            store,
            fingerprint.digest,
            block_bytes=self.block_size_bytes,
            lookup_timeout_s=lookup_timeout_s,
        )
        self._rows = primary_kv_view.cast("B")
        self._names: dict[int, dict[BlockHash, OffloadKey]] = {}

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:  # noqa: ARG002
        """Say at once what is known; the shared store is asked in the background."""
        found = self._jobs.look_up(_name_of(key))
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Write rows in the background."""
        self._jobs.store(job_metadata.job_id, *self._blocks(job_metadata))

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Read rows in the background; a block that is not whole fails, and is computed."""
        self._names[job_metadata.job_id] = {_name_of(key): key for key in job_metadata.keys}
        self._jobs.load(job_metadata.job_id, *self._blocks(job_metadata))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Report what ended since the last call."""
        for done in self._jobs.take_done():
            names = self._names.pop(done.number, {})
            yield JobResult(
                done.number,
                success=done.num_failed == 0,
                successful_keys=[names[key] for key in done.good if key in names],
                transfer_time=done.seconds,
                transfer_bytes=done.num_bytes,
            )

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:  # noqa: ARG002
        """Keep what is used from eviction."""
        self._jobs.touch([_name_of(key) for key in keys])

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:  # noqa: ARG002
        """Take blocks as they fill."""
        return RequestOffloadingContext()

    def on_schedule_end(self, context: ScheduleEndContext) -> None:  # noqa: ARG002
        """Send this step's questions to the shared store."""
        self._jobs.ask()

    def drain_jobs(self) -> None:
        """Wait until nothing touches vLLM's rows any more."""
        self._jobs.drain()

    def shutdown(self) -> None:
        """Finish and release the store."""
        self._jobs.close()
        self._rows.release()

    def _blocks(self, job: TransferJob) -> tuple[list[BlockHash], list[memoryview]]:
        keys = [_name_of(key) for key in job.keys]
        size = self.block_size_bytes
        return keys, [self._rows[int(c) * size : (int(c) + 1) * size] for c in job.chunk_ids]


def _name_of(key: OffloadKey) -> BlockHash:
    """Return 32 bytes: the block's own hash, or a digest where it is shorter or not of group 0."""
    block_hash = get_offload_block_hash(key)
    if len(block_hash) == len(hashlib.sha256().digest()) and get_offload_group_idx(key) == 0:
        return BlockHash(block_hash)
    return BlockHash(hashlib.sha256(key).digest())


def fingerprint_of(spec: OffloadingSpec) -> Fingerprint:
    """Return what has to agree before another engine's bytes may be used.

    Heads and head size are one number here, bytes per token and layer, since a row is copied whole;
    the model's own numbers are in `weights`, which covers its config.json.
    """
    config = spec.config
    group = config.groups[0]
    num_layers = sum(len(each.layer_names) for each in config.groups)
    tokens = max(1, group.tokens_per_block)
    return Fingerprint(
        model=Path(config.model.name).name,
        weights=_weights_of(config.model.name),
        kv_dtype=config.model.dtype,
        layout=f"vllm {config.kv_cache_layout}, {config.worker_kv_bytes_per_block} bytes, "
        f"{config.cache.blocks_per_chunk} per chunk",
        packing=_packing(),
        block_size=tokens * config.cache.blocks_per_chunk,
        num_layers=num_layers,
        num_kv_heads=1,
        head_dim=config.worker_kv_bytes_per_block // max(1, tokens * num_layers),
        rope="in weights",
        hash_scheme=f"vllm, {config.cache.tokens_per_hash} tokens, "
        f"seed {os.environ.get('PYTHONHASHSEED', 'default')}",
        tensor_parallel_size=config.parallel.world_size,
    )


def _packing() -> str | None:
    """K is packed inside a block as the processor's instructions want it."""
    from vllm.platforms import current_platform  # noqa: PLC0415 - detected late, as vLLM does

    if not current_platform.is_cpu():
        return None
    return str(torch.backends.cpu.get_cpu_capability())


def _weights_of(model: str) -> str:
    """Digest a model directory: its config, and of each weight file name, size and both ends.

    Of a hub id there is only the name here; vLLM has the files in its own cache.
    """
    folder = Path(model)
    if not folder.is_dir():
        return f"hub:{model}"
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in {".safetensors", ".bin", ".pt", ".gguf"}:
            digest.update(json.dumps([path.name, path.stat().st_size]).encode())
            with path.open("rb") as file:
                digest.update(file.read(_SAMPLE_BYTES))
                file.seek(max(0, path.stat().st_size - _SAMPLE_BYTES))
                digest.update(file.read(_SAMPLE_BYTES))
        elif path.name == "config.json":
            digest.update(path.read_bytes())
    return digest.hexdigest()
