"""Slope and constant of a sequence, from what a server says at its start.

A server divides its pool by the bytes of one sequence of `max_model_len` and reports the quotient
in tokens. One such line gives a ratio that mixes slope and constant; lines of several lengths give
both: `ratio * max_model_len = fixed + slope * max_model_len`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warmturn.errors import InvalidInput

__all__ = ["CapacityLine", "SequenceFit", "fit_sequence"]


@dataclass(frozen=True, slots=True)
class CapacityLine:
    """One start of the server."""

    max_model_len: int
    available_bytes: float
    reported_tokens: float


@dataclass(frozen=True, slots=True)
class SequenceFit:
    """Bytes of a sequence of n tokens: `fixed_bytes + slope_bytes * n`."""

    slope_bytes: float
    fixed_bytes: float

    def num_sequences(self, available_bytes: float, sequence_tokens: int) -> int:
        """Return how many whole sequences of that length fit."""
        return int(available_bytes // (self.fixed_bytes + self.slope_bytes * sequence_tokens))


def fit_sequence(lines: Sequence[CapacityLine]) -> SequenceFit:
    """Fit slope and constant by least squares of relative error.

    Raises `InvalidInput` with fewer than two different lengths, or figures that are not above 0.
    """
    if len({line.max_model_len for line in lines}) < 2:
        raise InvalidInput(
            f"{len(lines)} start logs of one length cannot tell slope from constant; start the "
            "server with another maximum length"
        )
    if min(min(x.max_model_len, x.available_bytes, x.reported_tokens) for x in lines) <= 0:
        raise InvalidInput("a start log has a length, bytes or tokens of 0 or less; check them")
    lengths = np.array([line.max_model_len for line in lines], dtype=float)
    ratios = np.array([line.available_bytes / line.reported_tokens for line in lines])
    each = ratios * lengths
    design = np.column_stack((np.ones(len(lines)), lengths)) / each[:, None]
    fixed, slope = np.linalg.lstsq(design, np.ones(len(lines)), rcond=None)[0]
    return SequenceFit(float(slope), float(fixed))
