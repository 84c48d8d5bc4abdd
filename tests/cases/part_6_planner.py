"""Part 6, planner."""

import json
from typing import Any

from tests.cases.discovery import Case


def geometry(case: Case) -> dict[str, Any]:
    return {"answers": {v["id"]: _answer(case, v) for v in case.input["variants"]}}


def _answer(case: Case, variant: dict[str, Any]) -> dict[str, Any]:
    from warmturn.cost import KvCost, Parallelism, geometry_of, kv_dtype_named
    from warmturn.errors import InvalidInput

    try:
        kv_dtype_named(variant["kv_dtype"])
    except InvalidInput:
        return {"error": "unknown-kv-dtype"}
    shape = geometry_of(json.loads(case.read_text(variant["config_file"])), name=variant["id"])
    dtypes = variant["state_dtypes"] or {"conv": "bfloat16", "recurrent": "float32"}
    parallelism = Parallelism(variant["tp"], data_attention=variant["dp_attention"])
    cost = KvCost(
        shape,
        kv_dtype=variant["kv_dtype"],
        parallelism=parallelism,
        has_speculation=variant["speculative_layers"],
        conv_dtype=dtypes["conv"],
        recurrent_dtype=dtypes["recurrent"],
    )
    # Without dtypes nothing is asked about states, so they are not counted.
    bytes_at = cost.bytes_at if variant["state_dtypes"] else cost.kv_bytes_at
    lengths = case.asked["answers"].get(variant["id"], {}).get("bytes_at") or {}
    return {
        "kv_bytes_per_token": cost.bytes_per_token,
        "kv_bytes_per_token_per_gpu": cost.bytes_per_token_per_gpu,
        "distinct_tokens_factor": parallelism.data_attention,
        "elements_per_token": shape.elements_per_token,
        "attention_layers": shape.num_attention_layers,
        "owning_layers": shape.num_owning_layers,
        "owning_full": shape.num_owning_layers - shape.num_owning_window_layers,
        "owning_sliding": shape.num_owning_window_layers,
        "growth_bytes_per_token_beyond_window": cost.bytes_per_token,
        "window_bytes_per_sequence": cost.window_bytes,
        "pool_without_hybrid_saving_per_token": cost.short_bytes_per_token,
        "bytes_at": {length: bytes_at(int(length)) for length in lengths},
        "state_bytes_per_sequence": {
            "conv": cost.state.conv,
            "recurrent": cost.state.recurrent,
        },
    }


def fit_capacity_log(case: Case) -> dict[str, Any]:
    from warmturn.cost import CapacityLine, fit_sequence

    fit = fit_sequence(
        [
            CapacityLine(log["max_model_len"], log["available_bytes"], log["reported_tokens"])
            for log in case.input["logs"]
        ]
    )
    question = case.input["question"]
    return {
        "slope_bytes_per_token": fit.slope_bytes,
        "fixed_bytes_per_request": fit.fixed_bytes,
        "sequences": fit.num_sequences(question["available_bytes"], question["sequence_tokens"]),
    }


ANSWERS = {
    "geometry": (geometry, ()),
    "fit-capacity-log": (fit_capacity_log, ()),
}
