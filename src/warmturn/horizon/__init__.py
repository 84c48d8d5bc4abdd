"""How long idle blocks survive, from live figures, and what that means for users who think.

In go metric snapshots, think times and rates, each with its time; out come horizons in seconds and
tokens, and the share of later turns that will miss. Opens no connection and reads no clock: the
polling and the probing are `probe`'s.
"""

from warmturn.horizon.calibration import Calibration, Replay, calibrate
from warmturn.horizon.campaign import Campaign, CampaignResult, Evidence
from warmturn.horizon.counters import ReuseCheck, check_reuse
from warmturn.horizon.estimate import HorizonEstimate, TimedPage, estimate_horizon
from warmturn.horizon.evidence import (
    ProbeFacts,
    SplitUsage,
    classify,
    prefill_evidence,
    residency,
)
from warmturn.horizon.exposure import Exposure, TierNeed, exposure, tier_need
from warmturn.horizon.feedback import LoadModel, SteadyState, fit_load, steady_state
from warmturn.horizon.log_estimate import LogEstimate, estimate_from_log
from warmturn.horizon.metrics_page import (
    EngineFigures,
    IdleHistogram,
    MetricsPage,
    read_metrics_page,
)
from warmturn.horizon.posterior import HorizonPosterior, Interval
from warmturn.horizon.think_report import ThinkGroup, ThinkReport, think_report
from warmturn.horizon.ttft_model import TtftModel, calibrate_ttft
from warmturn.horizon.turn_gaps import GapBracket, LoggedGap, bracket_horizon

__all__ = [
    "Calibration",
    "Campaign",
    "CampaignResult",
    "EngineFigures",
    "Evidence",
    "Exposure",
    "GapBracket",
    "HorizonEstimate",
    "HorizonPosterior",
    "IdleHistogram",
    "Interval",
    "LoadModel",
    "LogEstimate",
    "LoggedGap",
    "MetricsPage",
    "ProbeFacts",
    "Replay",
    "ReuseCheck",
    "SplitUsage",
    "SteadyState",
    "ThinkGroup",
    "ThinkReport",
    "TierNeed",
    "TimedPage",
    "TtftModel",
    "bracket_horizon",
    "calibrate",
    "calibrate_ttft",
    "check_reuse",
    "classify",
    "estimate_from_log",
    "estimate_horizon",
    "exposure",
    "fit_load",
    "prefill_evidence",
    "read_metrics_page",
    "residency",
    "steady_state",
    "think_report",
    "tier_need",
]
