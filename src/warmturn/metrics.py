"""What one turn did: the record every report, table and histogram is made from."""

from dataclasses import dataclass

__all__ = ["TurnMetrics"]


@dataclass(frozen=True, slots=True)
class TurnMetrics:
    """Measured facts of one finished request. Times in seconds, lengths in tokens."""

    prompt_tokens: int
    cached_tokens: int
    """Leading prompt tokens taken from the pool at admission; at most prompt_tokens - 1."""
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
