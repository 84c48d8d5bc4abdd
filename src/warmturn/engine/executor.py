"""The executor: runs a planned step on real weights and chooses the next tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from warmturn.engine.api import Choice, SamplingParams
from warmturn.engine.attention import Attention
from warmturn.engine.batch import lay_out
from warmturn.engine.heap import give_back
from warmturn.engine.linear import cpu_multiplies_bfloat16
from warmturn.engine.model import LoadedModel, forward, load_model
from warmturn.engine.model_config import ModelConfig
from warmturn.engine.paged_kv import PagedKv
from warmturn.engine.sampling import sample
from warmturn.errors import BrokenInvariant, InvalidInput
from warmturn.replica.step import Sampled, Step, Work
from warmturn.types import RequestId

__all__ = ["Device", "Dtype", "Executor", "load"]

Dtype: TypeAlias = Literal["auto", "float32", "bfloat16"]
Device: TypeAlias = Literal["cpu", "cuda"]

TRIMMED_FROM_TOKENS = 512
"""Steps from this size leave tens of megabytes of freed temporaries; giving them back takes
milliseconds, the step itself a good part of a second and more."""


class Executor:
    """Computes steps of one replica over K/V memory allocated once.

    Holds no sequence state: what a step needs is in the step. Not thread-safe, and best
    called from one and the same thread: torch's and numba's helper threads belong to the
    thread that calls them.
    """

    def __init__(
        self,
        model: Path | LoadedModel,
        *,
        num_blocks: int,
        block_size: int = 16,
        dtype: Dtype = "auto",
        device: Device = "cpu",
        num_threads: int | None = None,
    ) -> None:
        """Load the model and allocate `num_blocks` blocks of `block_size` tokens.

        `dtype` and `device` count only where `model` is a directory. `num_threads` sets
        torch's threads for the whole process; None leaves them. Raises `InvalidInput`,
        `UnsupportedModel`.
        """
        if num_blocks < 1 or block_size < 1:
            raise InvalidInput(
                f"{num_blocks} blocks of {block_size} tokens asked for; both must be at least 1"
            )
        if num_threads is not None:
            if num_threads < 1:
                raise InvalidInput(f"{num_threads} threads asked for; at least 1 is needed")
            torch.set_num_threads(num_threads)
        self._model = model if isinstance(model, LoadedModel) else load(model, dtype, device)
        self.kv = PagedKv(
            self._model.config,
            num_blocks=num_blocks,
            block_size=block_size,
            dtype=self._model.dtype,
            device=self._model.device,
        )
        self._attention = Attention(
            self.kv, self._model.config, num_threads=torch.get_num_threads()
        )

    @property
    def config(self) -> ModelConfig:
        """The model's geometry and limits."""
        return self._model.config

    @property
    def dtype(self) -> torch.dtype:
        """What weights, keys and values are kept in."""
        return self._model.dtype

    def warm_up(self) -> None:
        """Run a prefill and a decode on the first blocks, so that no request waits for compiling.

        Only for memory that holds nothing yet.
        """
        blocks = np.arange(min(2, self.kv.num_blocks), dtype=np.int32)
        room = min(len(blocks) * self.kv.block_size, self.config.max_position_embeddings)
        tokens = np.zeros(max(room - 1, 1), np.int32)
        prefill = Work(RequestId("warm-up"), tokens, 0, blocks, samples=True, is_decode=False)
        last = np.zeros(1, np.int32)
        decode = Work(RequestId("warm-up"), last, room - 1, blocks, samples=True, is_decode=True)
        greedy = {RequestId("warm-up"): Choice(SamplingParams(temperature=0.0), index=0)}
        for work in (prefill, decode):
            self.execute(Step(0, (work,)), greedy)
        give_back()  # what loading and compiling left

    def execute(self, step: Step, choices: Mapping[RequestId, Choice]) -> list[Sampled]:
        """Compute the step; return one token per work with `samples`, in the step's order.

        `choices` has an entry for each of those.
        """
        logits = self.logits(step)
        request_ids = [work.request_id for work in step.works if work.samples]
        return sample(logits, request_ids, [choices[each] for each in request_ids])

    @torch.inference_mode()
    def logits(self, step: Step) -> Tensor:
        """Compute the step; return float32 logits `[num_sampling_works, vocab_size]`."""
        for work in step.works:
            self._check(work)
        batch = lay_out(step.works, block_size=self.kv.block_size, device=self._model.device)
        logits = forward(self._model, self.kv, self._attention, batch)
        if step.num_tokens >= TRIMMED_FROM_TOKENS:
            give_back()
        return logits

    def _check(self, work: Work) -> None:
        """Refuse work that would read or write outside its blocks: the plan's mistake."""
        end = work.position + len(work.token_ids)
        if not work.position < end <= len(work.block_ids) * self.kv.block_size:
            raise BrokenInvariant(
                f"request '{work.request_id}' computes tokens {work.position} to {end} "
                f"on {len(work.block_ids)} blocks of {self.kv.block_size}"
            )
        if end > self.config.max_position_embeddings:
            raise BrokenInvariant(
                f"request '{work.request_id}' reaches token {end}, the model's limit is "
                f"{self.config.max_position_embeddings}"
            )


def load(directory: Path, dtype: Dtype = "auto", device: Device = "cpu") -> LoadedModel:
    """Load a model directory; "auto" takes bf16 where the processor multiplies it."""
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidInput("device 'cuda' asked for, but torch finds no CUDA device; use 'cpu'")
    if dtype == "auto":
        dtype = "bfloat16" if _multiplies_bfloat16(device) else "float32"
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if dtype not in dtypes:
        raise InvalidInput(f"dtype '{dtype}' is not known; use auto, float32 or bfloat16")
    return load_model(directory, dtype=dtypes[dtype], device=torch.device(device))


def _multiplies_bfloat16(device: Device) -> bool:
    return torch.cuda.is_bf16_supported() if device == "cuda" else cpu_multiplies_bfloat16()
