"""The append-only checker: what a turn could have reused and did not, why, and what to change.

In come logged requests and a chat template; out goes a report of turns with the cause of each
break, found by undoing suspects and rendering again, its cost, and fixes proven by rendering.
Reads no files, prints nothing and knows no server: `formats` reads, `cli` shows.
"""

from warmturn.check.causes import Finding
from warmturn.check.checker import Checker, check_conversations, check_turn
from warmturn.check.names import UNKNOWN, blame_of
from warmturn.check.parity import Parity, compare_renderings
from warmturn.check.report import CheckReport, ConversationCheck, Fix, TurnCheck, WindowStep
from warmturn.check.settings import Settings
from warmturn.check.token_log import TokenPair, check_token_pair
from warmturn.check.tokens import TokenFinding
from warmturn.cost.reuse import Reuse, TurnCost

__all__ = [
    "UNKNOWN",
    "CheckReport",
    "Checker",
    "ConversationCheck",
    "Finding",
    "Fix",
    "Parity",
    "Reuse",
    "Settings",
    "TokenFinding",
    "TokenPair",
    "TurnCheck",
    "TurnCost",
    "WindowStep",
    "blame_of",
    "check_conversations",
    "check_token_pair",
    "check_turn",
    "compare_renderings",
]
