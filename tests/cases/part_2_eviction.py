"""Part 2, horizon and metrics."""

from typing import Any

from tests.cases.discovery import Case


def metrics_text(case: Case) -> dict[str, Any]:
    return {"files": {name: _page(case.read_text(name)) for name in case.input["files"]}}


def _page(text: str) -> dict[str, Any]:
    from warmturn.horizon import read_metrics_page

    page = read_metrics_page(text)
    rates = {name: engine.hit_rate for name, engine in page.engines.items()}
    usage = {name: engine.usage for name, engine in page.engines.items()}
    hits, external = page.total("hits"), page.total("external_hits")
    return {
        "hit_rate": page.hit_rate,
        "hits": hits,
        "queries": page.total("queries"),
        "usage": page.mean("usage"),
        "usage_by_engine": {name: value for name, value in usage.items() if value is not None},
        "hit_rate_by_engine": {name: value for name, value in rates.items() if value is not None},
        "external_hit_rate": page.external_hit_rate,
        "local_plus_external_hits": None if hits is None or external is None else hits + external,
        "cpu_hit_rate": page.mean("host_hit_rate_gauge"),
    }


def counters_vs_requests(case: Case) -> dict[str, Any]:
    from warmturn.horizon import check_reuse

    requests = [(r["prompt_tokens"], r["cached_tokens"]) for r in case.input["requests"]]
    found = check_reuse(requests, case.input["counters_delta"])
    return {
        "true_reuse": found.true_reuse,
        "counter_rate": found.counter_rate,
        "trust": found.trust,
        "extra_queries": found.extra_queries,
        "extra_hits": found.extra_hits,
        "contradiction": found.is_contradiction,
    }


def full_hit_cap(case: Case) -> dict[str, Any]:
    from warmturn.cost import most_cached_tokens
    from warmturn.horizon import SplitUsage, prefill_evidence, residency

    rows = {}
    for row in case.input["rows"]:
        share = residency(row["prompt_tokens"], row["observed_cached"], row["block"])
        rows[row["id"]] = {
            "max_cached": most_cached_tokens(row["prompt_tokens"], row["block"]),
            "residency": share,
            "measurable": share is not None,
        }
    used = prefill_evidence([SplitUsage(**row) for row in case.input["pd_rows"]])
    split = None if used is None else {"use": used.side, "cached_tokens": used.cached_tokens}
    return {"rows": rows, "split": split}


def calibration(case: Case) -> dict[str, Any]:
    from warmturn.horizon import Replay, calibrate

    rules = {
        ladder["name"]: calibrate([Replay(**row) for row in ladder["rows"]])
        for ladder in case.input["ladders"]
    }
    probes = {}
    for probe in case.input["probes"]:
        rule = rules[probe["ladder"]]
        replay = Replay(probe["prompt_tokens"], probe["cached_tokens"])
        probes[probe["id"]] = {"verdict": rule.judge(replay), "residency": rule.residency(replay)}
    return {
        "ladders": {
            name: {
                "granularity": rule.granularity,
                "drops_last_block": rule.drops_last_block,
                "min_probe_tokens": rule.min_probe_tokens,
            }
            for name, rule in rules.items()
        },
        "probes": probes,
    }


def probe_classes(case: Case) -> dict[str, Any]:
    from warmturn.horizon import classify

    return {"verdicts": {str(row["id"]): classify(_facts(row)) for row in case.input["probes"]}}


def _facts(row: dict[str, Any]) -> Any:
    from warmturn.horizon import ProbeFacts

    usage = {**row, **(row.get("usage") or {})}
    details = usage.get("prompt_tokens_details") or {}
    return ProbeFacts(
        prompt_tokens=usage.get("prompt_tokens"),
        cached_tokens=usage.get("cached_tokens", details.get("cached_tokens")),
        block_size=row.get("block"),
        wants_prompt_logprobs="prompt_logprobs" in row,
        salt=row.get("salt"),
        warm_salt=row.get("warm_salt"),
        model=row.get("model"),
        warm_model=row.get("warm_model"),
        process_start_s=row.get("process_start"),
        warm_process_start_s=row.get("warm_process_start"),
    )


def turn_gaps(case: Case) -> dict[str, Any]:
    from warmturn.horizon import LoggedGap, bracket_horizon

    found = bracket_horizon(
        [
            LoggedGap(60 * t["gap_min"], t["read"], t["wrote"], t["first"], t["model_changed"])
            for t in case.input["turns"]
        ]
    )
    classes = ("age", "contradiction", "model_change", "first_turn", "hit")
    return {
        "horizon_minutes": {"lower": found.lower_s / 60, "upper": found.upper_s / 60},
        "classes": {name: found.count(name) for name in classes},
    }


def volume_horizon(case: Case) -> dict[str, Any]:
    from warmturn.cost import tier_horizons

    given = case.input
    found = tier_horizons(
        device_tokens=given["device_tokens"],
        host_tokens=given["host_tokens"],
        new_prompt_tokens_per_s=given["new_prompt_tokens_per_s"],
        generated_tokens_per_s=given["generated_tokens_per_s"],
    )
    return {
        "device_s": found.device_s,
        "host_extra_s": found.host_extra_s,
        "total_s": found.total_s,
    }


ANSWERS = {
    "metrics-text": (metrics_text, ()),
    "counters-vs-requests": (counters_vs_requests, ()),
    "full-hit-cap": (full_hit_cap, ()),
    "calibration": (calibration, ()),
    "probe-classes": (probe_classes, ()),
    "turn-gaps": (turn_gaps, ()),
    "volume-horizon": (volume_horizon, ()),
}
