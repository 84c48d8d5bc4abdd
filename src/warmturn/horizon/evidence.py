"""What one probe proves: a hit, a miss, or nothing, and why nothing.

A zero does not always mean evicted. Requests that want log-probabilities of the prompt do not read
the cache; many servers report no cached tokens at all; another salt or model is another name space;
a restart is a flush and no age. And a perfect hit never covers the whole prompt, so residency is
measured against the most that can be cached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from warmturn.cost import most_cached_tokens

__all__ = ["ProbeFacts", "SplitUsage", "Verdict", "classify", "prefill_evidence", "residency"]

Verdict: TypeAlias = Literal["hit", "miss", "unknown", "inconclusive", "invalid", "flushed"]
"""`unknown`: no number. `inconclusive`: the request cannot tell. `invalid`: warming and probe could
not share. `flushed`: the process restarted in between."""

HIT_SHARE = 0.5
"""Of what can be cached: less is a shared beginning (a template, a system prompt), no conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """One probe and the request that warmed it. Absent is None."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    block_size: int | None = None
    """None: unknown, taken as 1."""
    wants_prompt_logprobs: bool = False
    salt: str | None = None
    warm_salt: str | None = None
    model: str | None = None
    warm_model: str | None = None
    process_start_s: float | None = None
    warm_process_start_s: float | None = None


def residency(prompt_tokens: int, cached_tokens: int, block_size: int) -> float | None:
    """Return the share of what can be cached that was; None where nothing can be."""
    most = most_cached_tokens(prompt_tokens, block_size)
    return cached_tokens / most if most else None


def classify(probe: ProbeFacts) -> Verdict:
    """Return what the probe proves."""
    if probe.salt != probe.warm_salt:  # one salt against none is another name space too
        return "invalid"
    if probe.model != probe.warm_model and None not in {probe.model, probe.warm_model}:
        return "invalid"
    starts = {probe.process_start_s, probe.warm_process_start_s}
    if len(starts) == 2 and None not in starts:
        return "flushed"
    if probe.wants_prompt_logprobs:
        return "inconclusive"
    if probe.prompt_tokens is None or probe.cached_tokens is None:
        return "unknown"
    share = residency(probe.prompt_tokens, probe.cached_tokens, probe.block_size or 1)
    if share is None:
        return "inconclusive"
    return "hit" if share >= HIT_SHARE else "miss"


@dataclass(frozen=True, slots=True)
class SplitUsage:
    """What one side of a prefill/decode split reports."""

    side: Literal["prefill", "decode"]
    prompt_tokens: int
    cached_tokens: int


def prefill_evidence(reports: Sequence[SplitUsage]) -> SplitUsage | None:
    """Return the report that says what was reused; None without one of the prefill side.

    The decode side receives the keys and values of all but one token, so it always reports that.
    """
    return next((report for report in reports if report.side == "prefill"), None)
