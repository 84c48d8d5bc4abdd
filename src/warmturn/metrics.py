"""What one turn did: the record every report, table and histogram is made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["TurnMetrics"]


@dataclass(frozen=True, slots=True)
class TurnMetrics:
    """Measured facts of one finished request. Times in seconds, lengths in tokens."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens not computed: found in the pool at admission or loaded from a lower tier; at
    most prompt_tokens - 1."""
    prefilled_tokens: int
    """Prompt tokens computed, recomputation after a preemption included."""
    generated_tokens: int
    num_preemptions: int
    queue_s: float
    """From submission to first admission."""
    ttft_s: float | None
    """From submission to the first generated token; None when none was generated."""
    e2e_s: float
    """From submission to the end."""
    loaded_tokens: Mapping[str, int] = field(default_factory=dict)
    """Of `cached_tokens`, those loaded from below the pool, by tier: `host`, `disk`, `shared`."""
