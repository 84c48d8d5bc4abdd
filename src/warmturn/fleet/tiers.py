"""Where a block lies, under one name for the many that engines use."""

from enum import IntEnum

__all__ = ["Tier", "tier_named"]


class Tier(IntEnum):
    """Nearest first: a block on the device costs nothing to use, the others have to be loaded."""

    DEVICE = 0
    HOST = 1
    STORAGE = 2
    OTHER = 3
    """A medium no table knows. It counts as slow as storage."""


_BEGINNINGS: tuple[tuple[str, Tier], ...] = (
    *((word, Tier.DEVICE) for word in ("GPU", "DEVICE", "HBM", "CUDA", "XPU", "TPU", "NPU")),
    *((word, Tier.HOST) for word in ("CPU", "HOST", "DRAM", "RAM", "PINNED")),
    *((word, Tier.STORAGE) for word in ("STORAGE", "DISK", "SSD", "NVME", "FILE", "FS", "OBJ")),
    *((word, Tier.STORAGE) for word in ("S3", "REMOTE", "EXTERNAL", "SHARED")),
)


def tier_named(medium: str) -> Tier:
    """Return the tier of an event's `medium`: `CPU_PINNED` and `CPU_TIER2` are both the host."""
    word = medium.strip().upper()
    return next((tier for begin, tier in _BEGINNINGS if word.startswith(begin)), Tier.OTHER)
