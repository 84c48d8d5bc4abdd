"""What a tier manager asks to be moved, and what came of it. Values only."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from warmturn.types import BlockHash, HashWords

__all__ = ["Chain", "Done", "Lookup", "Order", "Outcome", "TierName", "Transfer", "chain_keys"]

Chain: TypeAlias = Sequence[BlockHash]
"""The hashes of one sequence's full blocks, in order."""


class TierName(StrEnum):
    """Where a block lies. Nearest first; each is slower and larger than the one before."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"
    SHARED = "shared"


class Outcome(StrEnum):
    """What became of one block of a transfer."""

    OK = "ok"
    MISSING = "missing"
    """It is not there, or not any more."""
    WRONG = "wrong"
    """What is there is not that block: checksum, length or owner do not match."""
    FAILED = "failed"
    """The store did not answer, in time or at all."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Blocks to copy from one tier to another, each under its key.

    Places are slots: of the pool on the device, of the arena on the host, of the slab on disk. The
    shared store has none and finds blocks by their keys. All slots named here stay as they are
    until the transfer is reported done.
    """

    number: int
    source: TierName
    target: TierName
    keys: tuple[BlockHash, ...]
    from_slots: tuple[int, ...]
    """Empty from the shared store."""
    to_slots: tuple[int, ...]
    """Empty to the shared store."""
    is_urgent: bool = False
    """True where a request waits for it."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Blocks to look for in the shared store; the answer is OK or MISSING for each."""

    number: int
    keys: tuple[BlockHash, ...]


Order: TypeAlias = Transfer | Lookup


@dataclass(frozen=True, slots=True)
class Done:
    """The end of an order: one outcome per key, and the seconds it took without its queue."""

    number: int
    outcomes: tuple[Outcome, ...]
    seconds: float


def chain_keys(words: HashWords) -> list[BlockHash]:
    """Return the hashes `[n, 4]` of a chain as keys."""
    data = words.tobytes()
    return [BlockHash(data[i : i + 32]) for i in range(0, len(data), 32)]
