"""Who announces blocks: one replica's rank, with a pool of its own."""

from dataclasses import dataclass
from typing import TypeAlias

from warmturn.types import ReplicaId

__all__ = ["GroupId", "Holder", "SourceId"]


@dataclass(frozen=True, slots=True, order=True)
class SourceId:
    """One publisher. A hit on rank 0 is worth nothing on rank 1: each has its own pool."""

    replica: ReplicaId
    rank: int = 0
    """Data-parallel rank, as the publisher numbers it (global, not per pod)."""

    def __str__(self) -> str:
        return f"{self.replica}/{self.rank}"


@dataclass(frozen=True, slots=True)
class GroupId:
    """One group of a hybrid model's layers in a source that does not need whole prefixes."""

    source: SourceId
    group_idx: int


Holder: TypeAlias = SourceId | GroupId
"""Whose blocks the index tells apart."""
