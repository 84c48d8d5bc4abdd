"""Our tiers in vLLM with one line of configuration. Runs inside vLLM 0.32.

    --kv-transfer-config '{"kv_connector":"OffloadingConnector","kv_role":"kv_both",
      "kv_connector_extra_config":{"spec_name":"WarmturnSpec",
        "spec_module_path":"warmturn.integrations.vllm_offload",
        "host_tier":"2GiB","disk_tier":"/var/tmp/kv:8GiB","shared_tier":"redis://cache:6379"}}'

vLLM's own connector and tiering do the work; this names the tiers, offloads generated tokens too,
and copies on the CPU where there is no GPU. On a GPU vLLM's own worker copies (not tried: CUDA).
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from vllm.platforms import current_platform
from vllm.v1.kv_offload.base import (
    BlockIDsLoadStoreSpec,
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    OffloadingWorker,
    TransferResult,
)
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from warmturn.errors import InvalidInput
from warmturn.stores.opening import disk_spec, size_in_bytes

__all__ = ["CpuWorker", "WarmturnSpec"]

_TIER = {"type": "WarmturnTier", "module_path": "warmturn.integrations.vllm_tier"}

_SETTINGS = {"lookup_timeout_s", "verify"}


class WarmturnSpec(TieringOffloadingSpec):
    """vLLM's host tier, with a disk and a shared store of ours below it.

    Keys beside vLLM's own: `host_tier` (size, required), `disk_tier` (PATH:SIZE), `shared_tier`
    (URL), `lookup_timeout_s`, `verify` (both as in `WarmturnTier`). Raises `InvalidInput` naming the key.
    """

    def __init__(self, config: OffloadingConfig) -> None:
        extra = _extra_config(config)
        super().__init__(replace(config, extra_config=extra))
        self._cpu_worker: CpuWorker | None = None

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        """Return vLLM's own worker where it has one, ours on the CPU."""
        if not current_platform.is_cpu():
            return super().get_worker(kv_caches)
        if self._cpu_worker is None:
            if self.blocks_per_chunk != 1:
                raise InvalidInput(
                    f"{self.blocks_per_chunk} blocks per chunk were asked for; on the CPU one is "
                    "copied at a time: leave block_size and blocks_per_chunk out"
                )
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._cpu_worker = CpuWorker(kv_caches, region)
        return self._cpu_worker


def _extra_config(config: OffloadingConfig) -> dict[str, Any]:
    """Write our keys out as vLLM's."""
    extra = dict(config.extra_config)
    host = extra.pop("host_tier", None)
    if host is not None:
        extra["cpu_bytes_to_use"] = size_in_bytes(str(host), option="host_tier")
    if not extra.get("cpu_bytes_to_use"):
        raise InvalidInput(
            "a WarmturnSpec needs 'host_tier', such as \"2GiB\": all tiers pass through host memory"
        )
    extra.setdefault("offload_prompt_only", False)  # the next turn begins with this one's reply
    tiers = [*extra.get("secondary_tiers", ())]
    settings = {name: extra.pop(name) for name in _SETTINGS & extra.keys()}
    disk, shared = extra.pop("disk_tier", None), extra.pop("shared_tier", None)
    if disk is not None:
        tiers.append(_TIER | settings | {"disk": _disk_of_rank(str(disk), config)})
    if shared is not None:
        tiers.append(_TIER | settings | {"shared": str(shared)})
    return extra | {"secondary_tiers": tiers}


def _disk_of_rank(disk: str, config: OffloadingConfig) -> str:
    """Give each data-parallel rank a folder of its own: a slab is one process's."""
    asked = disk_spec(disk)
    if config.parallel.data_parallel_size == 1:
        return disk
    return f"{asked.folder}/rank-{config.parallel.data_parallel_index}:{asked.num_bytes}"


class CpuWorker(OffloadingWorker):
    """Copies blocks between vLLM's CPU cache and its host tier, in a thread of its own.

    One thread keeps the order of stores and loads. vLLM lets nobody write to blocks that are
    being stored before `wait` has returned or the job was reported.
    """

    def __init__(self, kv_caches: CanonicalKVCaches, region: SharedOffloadRegion) -> None:
        self._region = region
        pages = [(t.tensor, t.page_size_bytes) for t in kv_caches.tensors]
        self._device = [tensor.view(torch.int8).view(-1, page) for tensor, page in pages]
        self._host = [region.create_next_worker_view(page) for _, page in pages]
        self._thread = ThreadPoolExecutor(1, "tier-copy")
        self._out: dict[int, Future[TransferResult]] = {}

    def submit_store(
        self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec
    ) -> bool:
        """Copy from the cache to the host."""
        return self._submit(job_id, self._device, src_spec, self._host, dst_spec)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        """Copy from the host to the cache."""
        return self._submit(job_id, self._host, src_spec, self._device, dst_spec)

    def get_finished(self) -> list[TransferResult]:
        """Return what ended since the last call."""
        ended = [job_id for job_id, future in self._out.items() if future.done()]
        return [self._out.pop(job_id).result() for job_id in ended]

    def wait(self, job_ids: set[int]) -> None:
        """Return when these jobs have ended; `get_finished` still reports them."""
        for job_id in job_ids:
            if job_id in self._out:
                self._out[job_id].result()

    def shutdown(self) -> None:
        """End the thread and let go of the memory."""
        self._thread.shutdown()
        self._device.clear()
        self._host.clear()
        self._region.cleanup()

    def _submit(
        self,
        job_id: int,
        sources: Sequence[torch.Tensor],
        source: LoadStoreSpec,
        targets: Sequence[torch.Tensor],
        target: LoadStoreSpec,
    ) -> bool:
        assert isinstance(source, BlockIDsLoadStoreSpec)
        assert isinstance(target, BlockIDsLoadStoreSpec)
        ids = source.block_ids, target.block_ids
        self._out[job_id] = self._thread.submit(_copy, job_id, sources, targets, *ids)
        return True


def _copy(
    job_id: int,
    sources: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    from_ids: np.ndarray[Any, np.dtype[np.int32]],
    to_ids: np.ndarray[Any, np.dtype[np.int32]],
) -> TransferResult:
    started = time.perf_counter()
    from_rows, to_rows = torch.from_numpy(from_ids).long(), torch.from_numpy(to_ids).long()
    num_bytes = 0
    for source, target in zip(sources, targets, strict=True):
        rows = source[from_rows]
        target[to_rows] = rows
        num_bytes += rows.numel()
    return TransferResult(job_id, True, num_bytes, time.perf_counter() - started)
