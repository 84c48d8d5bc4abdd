"""How long idle blocks survive, from live figures, and what that means for users who think.

In go metric snapshots, think times and rates, each with its time; out come horizons in seconds and
tokens, and the share of later turns that will miss. Opens no connection and reads no clock: the
polling and the probing are `probe`'s.
"""

from warmturn.horizon.exposure import Exposure, TierNeed, exposure, tier_need

__all__ = [
    "Exposure",
    "TierNeed",
    "exposure",
    "tier_need",
]
