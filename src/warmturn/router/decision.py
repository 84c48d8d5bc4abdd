"""Where a request goes, and why: every candidate with its price and the terms of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from warmturn.fleet import SourceId
from warmturn.router.views import Candidate, PrefixHit, RoutingRequest

__all__ = ["Decision", "Policy", "Priced", "alive", "cheapest", "decided"]


@dataclass(frozen=True, slots=True)
class Priced:
    """One candidate as the policy saw it."""

    source: SourceId
    price: float | None
    """Lowest wins. The unit is the policy's: milliseconds for `price`. None: not eligible."""
    reason: str
    """Why not eligible, or one word on the price."""
    terms: dict[str, float] = field(default_factory=dict)
    """What the price is made of, by name with its unit."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome. `source` is None when nobody is alive: not now, rather than never."""

    policy: str
    source: SourceId | None
    reason: str
    """What it means to the session: `kept`, `moved`, `new`, or `nobody` to take it."""
    predicted_tokens: int
    """Cached tokens expected at the chosen one; to be compared with what it delivers."""
    candidates: tuple[Priced, ...]
    """All of them, eligible or not, in order of preference."""


class Policy(Protocol):
    """Chooses from views alone: the same views always give the same decision.

    `now` is in seconds; it is for policies that need the time, and is logged with the views.
    """

    @property
    def name(self) -> str:
        """What `--policy` calls it."""
        ...

    @property
    def wants_hits(self) -> bool:
        """Whether it looks at what candidates hold of the prompt, which costs tokenising it."""
        ...

    def choose(
        self, request: RoutingRequest, candidates: Sequence[Candidate], now: float
    ) -> Decision:
        """Return the decision; never raises for want of candidates."""
        ...


def alive(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the eligible ones, in no order that may decide anything."""
    return [c for c in candidates if c.is_alive]


def decided(
    policy: str,
    request: RoutingRequest,
    candidates: Sequence[Candidate],
    priced: Sequence[Priced],
) -> Decision:
    """Return a decision for the first of `priced`, adding those that are not alive."""
    ordered = tuple(priced)
    if len(priced) < len(candidates):
        dead = [Priced(c.source, None, "not alive") for c in candidates if not c.is_alive]
        ordered = (*priced, *sorted(dead, key=lambda entry: entry.source))
    if not priced:
        return Decision(policy, None, "nobody", 0, ordered)
    chosen = next(c for c in candidates if c.source == priced[0].source)
    word, predicted_tokens = move_word(request, chosen), expected_hit(chosen)
    return Decision(policy, chosen.source, word, predicted_tokens, ordered)


def cheapest(priced: Iterable[Priced]) -> list[Priced]:
    """Return the priced ones, lowest first, equal ones in order of their names."""
    return sorted(priced, key=lambda entry: (entry.price, entry.source))


def expected_hit(candidate: Candidate) -> int:
    """Return the cached tokens to expect: belief times trust times survival."""
    return expected_tokens(candidate.hit, candidate.trust, candidate.survival)


def expected_tokens(hit: PrefixHit, trust: float, survival: float) -> int:
    """Return what is to be expected of a hit believed with `trust`."""
    return round(hit.any_tokens * min(1.0, max(0.0, trust * survival)))


def move_word(request: RoutingRequest, chosen: Candidate) -> str:
    """Say in one word what the choice means to the session."""
    if request.last_source is None:
        return "new"
    return "kept" if chosen.source == request.last_source else "moved"
