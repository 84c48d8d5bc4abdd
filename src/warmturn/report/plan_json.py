"""A plan as JSON: the keys of docs/reference/plan.md."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from warmturn.cost import DeviceBudget, KvCost, PlannedModel, Split
from warmturn.cost.plan import Plan
from warmturn.horizon import Exposure, TierNeed

__all__ = ["finite", "model_json", "plan_json"]


def model_json(model: PlannedModel, cost: KvCost) -> dict[str, Any]:
    """Return what one model's sequences cost."""
    geometry, parameters = model.geometry, model.parameters
    return {
        "model": model.name,
        "source": model.source,
        "kv_dtype": cost.dtype.name,
        "layers": len(geometry.layers),
        "attention_layers": geometry.num_attention_layers,
        "owning_layers": geometry.num_owning_layers,
        "owning_window_layers": geometry.num_owning_window_layers,
        "elements_per_token": geometry.elements_per_token,
        "kv_bytes_per_token": cost.bytes_per_token,
        "short_kv_bytes_per_token": cost.short_bytes_per_token,
        "kv_bytes_per_token_per_gpu": cost.bytes_per_token_per_gpu,
        "token_copies": cost.num_token_copies,
        "window_bytes_per_sequence": cost.window_bytes,
        "state_bytes_per_sequence": asdict(cost.state),
        "parameters": None if parameters is None else asdict(parameters),
        "notes": list(geometry.notes),
    }


def plan_json(
    model: PlannedModel,
    cost: KvCost,
    plan: Plan,
    exposed: Exposure,
    need: TierNeed,
    device: tuple[DeviceBudget, Sequence[Split]] | None,
) -> dict[str, Any]:
    """Return all of a plan; what is infinite is null, since JSON has no such number."""
    answers = asdict(plan)
    result = {
        **model_json(model, cost),
        **answers,
        "prefill_ratio": plan.prefill_ratio,
        "think_time": {**asdict(exposed), "miss_share": exposed.miss_share},
        "tier": {**asdict(need), "tier_bytes": need.tier_tokens * plan.bytes_per_token},
        "device": None
        if device is None
        else {
            **asdict(device[0]),
            "pool": device[0].pool,
            "splits": [asdict(s) for s in device[1]],
        },
    }
    found: dict[str, Any] = finite(result)
    return found


def finite(value: Any) -> Any:
    """Return the value with None in the place of numbers that are not finite."""
    match value:
        case dict():
            return {key: finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [finite(inner) for inner in value]
        case float() if not math.isfinite(value):
            return None
    return value
