"""What keys and values cost: bytes of a model's sequences, what a pool holds, and what is saved.

In go a model's config (or its name), sizes and rates; out come bytes, tokens, operations and
seconds. Arithmetic only: it measures nothing and knows no engine, no request and no clock.
"""

from warmturn.cost.capacity import (
    TierHorizons,
    horizon_s,
    miss_share_without_affinity,
    num_sequences,
    pool_tokens,
    tier_horizons,
    tokens_to_survive,
)
from warmturn.cost.config import geometry_of
from warmturn.cost.conversation import ConversationShape
from warmturn.cost.device import DeviceBudget, Split, device_budget, splits
from warmturn.cost.geometry import HeadCache, LatentCache, Layer, ModelGeometry, StateCache
from warmturn.cost.kv_bytes import KvCost, Parallelism, StateBytes
from warmturn.cost.kv_dtype import KV_DTYPES, KvDtype, float_bytes, kv_dtype_named
from warmturn.cost.model_source import PlannedModel, read_model
from warmturn.cost.parameters import ParameterCount
from warmturn.cost.presets import Preset, preset_named, presets
from warmturn.cost.reload import PrefillWork, ReloadEstimate, prefill_work, reload_estimate
from warmturn.cost.reuse import Reuse, TurnCost, cost_of, most_cached_tokens, reuse_of
from warmturn.cost.start_log import CapacityLine, SequenceFit, fit_sequence
from warmturn.cost.tenants import TenantCost, tenant_cost

__all__ = [
    "KV_DTYPES",
    "CapacityLine",
    "ConversationShape",
    "DeviceBudget",
    "HeadCache",
    "KvCost",
    "KvDtype",
    "LatentCache",
    "Layer",
    "ModelGeometry",
    "Parallelism",
    "ParameterCount",
    "PlannedModel",
    "PrefillWork",
    "Preset",
    "ReloadEstimate",
    "Reuse",
    "SequenceFit",
    "Split",
    "StateBytes",
    "StateCache",
    "TenantCost",
    "TierHorizons",
    "TurnCost",
    "cost_of",
    "device_budget",
    "fit_sequence",
    "float_bytes",
    "geometry_of",
    "horizon_s",
    "kv_dtype_named",
    "miss_share_without_affinity",
    "most_cached_tokens",
    "num_sequences",
    "pool_tokens",
    "prefill_work",
    "preset_named",
    "presets",
    "read_model",
    "reload_estimate",
    "reuse_of",
    "splits",
    "tenant_cost",
    "tier_horizons",
    "tokens_to_survive",
]
