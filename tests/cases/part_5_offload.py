"""Part 5, offload."""

from typing import Any

from tests.cases.discovery import Case


def load_length(case: Case) -> dict[str, Any]:
    from warmturn.cache import gates

    rows = {}
    for row in case.input["rows"]:
        load_tokens, compute_from = gates.load_length(
            num_tokens=row["total"],
            device_tokens=row["gpu_cached"],
            found_tokens=row["external_hit"],
            chunk_tokens=row["chunk"],
        )
        rows[row["id"]] = {"load_tokens": load_tokens, "compute_from": compute_from}
    return {"rows": rows}


def chunk_floor(case: Case) -> dict[str, Any]:
    from warmturn.cache.gates import stored_tokens
    from warmturn.errors import InvalidInput

    def answer(row: dict[str, Any]) -> dict[str, Any]:
        try:
            stored = stored_tokens(
                row["tokens"], block_tokens=row["block"], chunk_tokens=row["chunk"]
            )
        except InvalidInput:
            return {"stored": None, "error": "chunk-not-multiple-of-block"}
        return {"stored": stored, "error": None}

    return {"rows": {row["id"]: answer(row) for row in case.input["rows"]}}


def reload_or_recompute(case: Case) -> dict[str, Any]:
    from warmturn.cache.reload import Candidate, break_even_bytes_per_s, compare

    model = {
        "kv_bytes_per_token": case.input["model"]["kv_bytes_per_token"],
        "prefill_tokens_per_s": case.input["model"]["prefill_tok_s"],
    }
    rows = {}
    for row in case.input["candidates"]:
        run = Candidate(row["tokens"], row["gb_s"] * 1e9, row["queue_s"], row["fixed_s"])
        load_s, recompute_s = compare(run, **model)
        rows[row["id"]] = {
            "load_s": load_s,
            "recompute_s": recompute_s,
            "choose": "load" if load_s < recompute_s else "recompute",
        }
    return {
        "rows": rows,
        "break_even_bandwidth_bytes_s": round(break_even_bytes_per_s(**model)),
    }


def key_stability(case: Case) -> dict[str, Any]:
    from warmturn.cache.gates import agreeing_hashes

    verdicts = agreeing_hashes(case.input["rows"])
    return {"verdicts": {algo: "stable" if ok else "unstable" for algo, ok in verdicts.items()}}


def tier_gates(case: Case) -> dict[str, Any]:
    return {"rows": {row["id"]: _gate(row) for row in case.input["rows"]}}


def _gate(row: dict[str, Any]) -> dict[str, Any]:
    from warmturn.cache import gates

    match row["gate"]:
        case "prefetch-capacity":
            capacity = gates.prefetch_capacity(
                host_tokens=row["host_tokens"], device_tokens=row["device_tokens"]
            )
            return {"prefetch_capacity": capacity}
        case "lookup-threshold":
            looked_up = gates.is_looked_up(
                row["new_tokens"], threshold=row["prefetch_threshold"], page_tokens=row["page"]
            )
            return {"lookup": looked_up}
        case "store-threshold":
            return {"first_possible_hit_send": gates.first_possible_hit(row["store_threshold"])}
        case "prompt-logprobs":
            allowed = gates.servable_tokens(
                row["external_hit"], prompt_logprobs=row["prompt_logprobs"]
            )
            return {"allowed_cached": allowed}
        case "inclusive-capacity":
            distinct = gates.distinct_capacity(
                device_blocks=row["device_pages"],
                host_blocks=row["host_pages"],
                is_inclusive="exclusive" not in row["policy"],
            )
            return {"distinct_pages": distinct}
    raise AssertionError(row["gate"])


ANSWERS = {
    "load-length": (load_length, ()),
    "chunk-floor": (chunk_floor, ()),
    "reload-or-recompute": (reload_or_recompute, ()),
    "key-stability": (key_stability, ()),
    "tier-gates": (tier_gates, ()),
}
