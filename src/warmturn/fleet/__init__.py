"""Belief about many replicas: who holds which blocks, how far to trust that, how busy each is.

In go decoded KV events, what was routed where, and what was answered; out come matches of a chain
per replica, trust, loads and learned rates. Knows no socket and no clock: `gateway` reads events
and tells the time. What one replica really holds is `cache`'s business.
"""

from warmturn.fleet.approximate import ApproximateSource
from warmturn.fleet.beliefs import Beliefs, BlockMatch, PromptBlocks, PromptMatches, chunk_chain
from warmturn.fleet.chain import IndexHashes, IndexScope, index_chain
from warmturn.fleet.consumer import AnnouncedMatches, FleetConsumer
from warmturn.fleet.expected import Expectation, ExpectedBlocks
from warmturn.fleet.growing_chain import GrowingChain
from warmturn.fleet.index import FleetIndex, Matches, PrefixMatch
from warmturn.fleet.load import LoadView, SmoothedLoad
from warmturn.fleet.publishers import is_asleep, publisher_ports, silent_publishers
from warmturn.fleet.rates import LearnedRates, RateLearner
from warmturn.fleet.sequence import Arrival, Received, ReplayRequest, SourceState
from warmturn.fleet.sources import GroupId, SourceId
from warmturn.fleet.tiers import Tier, tier_named
from warmturn.fleet.trust import HitFeedback, trust_of

__all__ = [
    "AnnouncedMatches",
    "ApproximateSource",
    "Arrival",
    "Beliefs",
    "BlockMatch",
    "Expectation",
    "ExpectedBlocks",
    "FleetConsumer",
    "FleetIndex",
    "GroupId",
    "GrowingChain",
    "HitFeedback",
    "IndexHashes",
    "IndexScope",
    "LearnedRates",
    "LoadView",
    "Matches",
    "PrefixMatch",
    "PromptBlocks",
    "PromptMatches",
    "RateLearner",
    "Received",
    "ReplayRequest",
    "SmoothedLoad",
    "SourceId",
    "SourceState",
    "Tier",
    "chunk_chain",
    "index_chain",
    "is_asleep",
    "publisher_ports",
    "silent_publishers",
    "tier_named",
    "trust_of",
]
