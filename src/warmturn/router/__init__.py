"""Which replica takes a request: views in, a decision with all its reasons out.

In go one request and a view per candidate (`fleet` knows what each holds and how busy it is); out
comes a `Decision`. Pure: the same views give the same decision, today and from a log. What runs
next on the chosen replica is `replica`'s question, and sending it there is `gateway`'s.
"""

from warmturn.router.account import SourceAccount
from warmturn.router.affinity import Affinity
from warmturn.router.bounds import Bounds
from warmturn.router.decision import Decision, Policy, Priced
from warmturn.router.decision_log import (
    Content,
    DecisionLogWriter,
    TurnEnd,
    read_decision_log,
)
from warmturn.router.dispatcher import Dispatcher, Survival
from warmturn.router.least_load import LeastLoad
from warmturn.router.linear import Linear
from warmturn.router.placement import Belief, Placement
from warmturn.router.policies import POLICY_NAMES, policy_named
from warmturn.router.prefix import Prefix
from warmturn.router.price import Price
from warmturn.router.prompt_hits import PromptHits
from warmturn.router.ranking import ranked
from warmturn.router.replay import (
    DecisionRecord,
    DecisionSummary,
    Replay,
    Replayer,
    replay,
    summary_of,
)
from warmturn.router.round_robin import RoundRobin
from warmturn.router.views import Candidate, PrefixHit, RoutingRequest, hit_of

__all__ = [
    "POLICY_NAMES",
    "Affinity",
    "Belief",
    "Bounds",
    "Candidate",
    "Content",
    "Decision",
    "DecisionLogWriter",
    "DecisionRecord",
    "DecisionSummary",
    "Dispatcher",
    "LeastLoad",
    "Linear",
    "Placement",
    "Policy",
    "Prefix",
    "PrefixHit",
    "Price",
    "Priced",
    "PromptHits",
    "Replay",
    "Replayer",
    "RoundRobin",
    "RoutingRequest",
    "SourceAccount",
    "Survival",
    "TurnEnd",
    "hit_of",
    "policy_named",
    "ranked",
    "read_decision_log",
    "replay",
    "summary_of",
]
