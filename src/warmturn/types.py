"""Nouns used by three packages or more. No behaviour lives here.

Admission rule: used by at least three packages, no methods that decide, and the
file stays under 250 lines.
"""

from typing import NewType, TypeAlias

import numpy as np
import numpy.typing as npt

RequestId = NewType("RequestId", str)
"""Names one request within one replica."""

ReplicaId = NewType("ReplicaId", str)
"""Names one engine of a fleet, the same name on every gateway."""

BlockId = NewType("BlockId", int)
"""A slot of one pool: 0 <= id < num_blocks."""

BlockHash = NewType("BlockHash", bytes)
"""Identity of a full block's content with its whole prefix; 32 bytes."""

TokenIds: TypeAlias = npt.NDArray[np.int32]
"""Token ids of one sequence, `[num_tokens]`, int32."""

BlockIds: TypeAlias = npt.NDArray[np.int32]
"""Slots of one sequence's blocks in order, `[num_blocks_of_sequence]`, int32."""

HashWords: TypeAlias = npt.NDArray[np.uint64]
"""Block hashes of one sequence in order, `[num_full_blocks, 4]`: each row is the
32 bytes of a `BlockHash` read as four uint64 in native order, the form bulk operations use."""
