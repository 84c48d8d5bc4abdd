"""What a policy sees: one request, and one view per candidate as of the moment of choosing.

Plain values, so that a decision can be logged with everything it was made from, and made again.
"""

from dataclasses import dataclass, field

from warmturn.errors import InvalidInput
from warmturn.fleet import LearnedRates, LoadView, PrefixMatch, SourceId
from warmturn.fleet.rates import UNMEASURED

__all__ = ["Candidate", "PrefixHit", "RoutingRequest", "hit_of"]


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """Leading tokens of the prompt that a candidate is believed to hold.

    Source: `fleet.FleetIndex` (or the imitation of a replica without events). Unit: tokens.
    Staleness: events of the last step or two are missing. Missing: nothing is held.
    Clamped to the prompt less one token, which is always computed.
    """

    device_tokens: int = 0
    """From the root on, all on the device."""
    near_tokens: int = 0
    """All on the device or the host; at least `device_tokens`."""
    any_tokens: int = 0
    """All in some tier; at least `near_tokens`."""


@dataclass(frozen=True, slots=True)
class RoutingRequest:
    """One request that has to go somewhere."""

    session: str
    """Key of the session identity, the same on every gateway."""
    prompt_tokens: int
    number: int = 0
    """How many requests this gateway saw before: what `round_robin` counts with."""
    last_source: SourceId | None = None
    """Where this gateway sent the session's turn before; of a fork or a sub-agent that begins,
    where its parent is. None for a new session, and where another gateway saw the turn before."""
    is_first_turn: bool = True
    """No answer stands in its messages: a session that has to be placed, not found again."""
    turns_left: float = 1.0
    """Expected further turns. Source: the turn statistics of `session`. Missing: 1."""

    @property
    def is_unplaced(self) -> bool:
        """Say whether no gateway can have sent the session anywhere yet."""
        return self.last_source is None and self.is_first_turn


@dataclass(frozen=True, slots=True)
class Candidate:
    """One source (a replica, or one data-parallel rank of it) that might take the request."""

    source: SourceId
    is_alive: bool = True
    """False: gone, unhealthy or draining. It is never chosen, whatever it holds."""
    weight: float = 1.0
    """Relative strength, above 0: twice the weight takes twice the sessions and the load."""
    capacity_tokens: int | None = None
    """Tokens its device pool holds. Source: its `/metrics`. None: unknown, taken as equal."""
    load: LoadView = field(default_factory=LoadView)
    hit: PrefixHit = field(default_factory=PrefixHit)
    trust: float = 1.0
    """Share 0-1 of the hit to count on (`fleet.trust_of`)."""
    survival: float = 1.0
    """Chance 0-1 that the blocks outlived the session's idle time. Missing: 1."""
    rates: LearnedRates = UNMEASURED
    host_tokens_per_s: float | None = None
    """Rate of loading from the host. None: host blocks are computed again, not credited."""
    storage_tokens_per_s: float | None = None
    """Likewise from storage."""

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise InvalidInput(
                f"source {self.source} has weight {self.weight}; give a number above 0, "
                "or drain it to send nothing there"
            )
        if self.capacity_tokens is not None and self.capacity_tokens < 1:
            raise InvalidInput(
                f"source {self.source} has a capacity of {self.capacity_tokens} tokens; "
                "leave it out where it is not known"
            )


def hit_of(match: PrefixMatch, *, block_size: float, prompt_tokens: int) -> PrefixHit:
    """Return a match in blocks as tokens; never the whole prompt, of which one is computed.

    `block_size` is in tokens; of chunks of bytes an estimate, and no whole number.
    """
    most = max(0, (prompt_tokens - 1) // block_size)
    device, near, anywhere = (
        int(min(blocks, most) * block_size) for blocks in (match.device, match.near, match.anywhere)
    )
    return PrefixHit(device, near, anywhere)
