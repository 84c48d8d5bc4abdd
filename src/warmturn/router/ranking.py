"""Weighted rendezvous: each session ranks all sources, the same way on every gateway.

Adding a source moves only the sessions that now rank it first, 1/N of them; removing one moves only
its own. Names decide, never positions in a list.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from math import exp, log

from warmturn.fleet import SourceId
from warmturn.router.views import Candidate

__all__ = ["ranked", "uniform"]

_STEPS = 2.0**53


def ranked(session: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates in the order in which `session` prefers them; O(n log n).

    Score: -weight / ln(u), u uniform in (0, 1) from session and source name. The share that ranks
    a source first is then its share of all weights.
    """
    return sorted(candidates, key=lambda c: (-_score(session, c), c.source))


def uniform(text: str, source: SourceId) -> float:
    """Return a number in (0, 1) drawn by `text` and the source's name, the same everywhere."""
    return exp(_log_uniform(text, source))


def _score(session: str, candidate: Candidate) -> float:
    return -candidate.weight / _log_uniform(session, candidate.source)


@lru_cache(maxsize=65_536)  # of pure values: some 15 MB, for the sessions that are busy now
def _log_uniform(session: str, source: SourceId) -> float:
    key = f"{len(session)}:{session}{source}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(key, digest_size=8, person=b"rendezvous").digest()
    return log(((int.from_bytes(digest) >> 11) + 0.5) / _STEPS)
