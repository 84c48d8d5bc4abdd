"""One step's tokens laid out for the model: computed once per step, used by every layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from warmturn.replica.step import Work

__all__ = ["Batch", "Chunk", "Singles", "lay_out"]


@dataclass(frozen=True, slots=True)
class Singles:
    """Queries that each attend to all of one sequence, themselves included."""

    rows: Tensor
    """`[num_queries]` int64: their rows in the batch."""
    tables: Tensor
    """`[num_queries, max_blocks]` int32: slots of their sequences, padded with 0."""
    lengths: Tensor
    """`[num_queries]` int32: lengths of their sequences in tokens."""
    num_cached_tokens: int
    """The lengths' sum: the work there is."""

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows `[start, stop)` of the batch: several new tokens of one sequence."""

    start: int
    stop: int
    position: int
    """Tokens of the sequence before the chunk."""
    past_blocks: Tensor
    """Slots of `[0, position)`, int64."""


@dataclass(frozen=True, slots=True)
class Batch:
    """All new tokens of a step in one row of tokens, single ones first."""

    token_ids: Tensor
    """`[num_tokens]` int64, as are the next three."""
    positions: Tensor
    blocks: Tensor
    """The slot each new token's key and value go to."""
    rows: Tensor
    """The row inside that slot."""
    singles: Singles
    """The sequences with one new token: rows `[0, len(singles))`."""
    chunks: tuple[Chunk, ...]
    sampled: Singles
    """The last token of each work that samples, in the step's order."""


def lay_out(works: Sequence[Work], *, block_size: int, device: torch.device) -> Batch:
    """Lay out `works` (at least one); their block tables must cover their new tokens."""
    singles = [work for work in works if len(work.token_ids) == 1]
    longer = [work for work in works if len(work.token_ids) > 1]
    ordered = singles + longer
    ends = dict(zip(map(id, ordered), np.cumsum([len(w.token_ids) for w in ordered]), strict=True))
    positions = [np.arange(w.position, w.position + len(w.token_ids)) for w in ordered]
    slots = [w.block_ids[p // block_size] for w, p in zip(ordered, positions, strict=True)]
    all_positions = np.concatenate(positions)

    def single(chosen: Sequence[Work]) -> Singles:
        rows = np.array([ends[id(work)] - 1 for work in chosen], np.int64)
        lengths = np.array([w.position + len(w.token_ids) for w in chosen], np.int32)
        tables = _tables(chosen, -(-lengths // block_size))
        return Singles(
            rows=torch.from_numpy(rows).to(device),
            tables=torch.from_numpy(tables).to(device),
            lengths=torch.from_numpy(lengths).to(device),
            num_cached_tokens=int(lengths.sum()),
        )

    def chunk(work: Work) -> Chunk:
        stop = int(ends[id(work)])
        past = work.block_ids[: -(-work.position // block_size)]
        return Chunk(
            start=stop - len(work.token_ids),
            stop=stop,
            position=work.position,
            past_blocks=_int64(past, device),
        )

    return Batch(
        token_ids=_int64(np.concatenate([work.token_ids for work in ordered]), device),
        positions=_int64(all_positions, device),
        blocks=_int64(np.concatenate(slots), device),
        rows=_int64(all_positions % block_size, device),
        singles=single(singles),
        chunks=tuple(map(chunk, longer)),
        sampled=single([work for work in works if work.samples]),
    )


def _tables(works: Sequence[Work], num_blocks: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    tables = np.zeros((len(works), int(num_blocks.max(initial=0))), np.int32)
    for row, work, count in zip(tables, works, num_blocks, strict=True):
        row[:count] = work.block_ids[:count]
    return tables


def _int64(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(array.astype(np.int64)).to(device)
