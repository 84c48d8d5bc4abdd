"""Runs kvlint and prefixguard on a log, inside the environment that has them.

    python benchmarks/check_peers.py TOOL LOG MODEL

Started by `benchmarks/check.py`. Prints one line of JSON: seconds without loading the
tokenizer, prompt tokens, and what was found for each request. Imports nothing of warmturn.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def kvlint(log: Path, model: str) -> dict[str, Any]:
    """Do what `kvlint lint` does."""
    from kvlint.ingest import load  # noqa: PLC0415 - of the peers' own environment
    from kvlint.lint.engine import run  # noqa: PLC0415
    from kvlint.sim import sglang_radix, vllm_blocks  # noqa: PLC0415
    from kvlint.tokenize.renderer import tokenize_requests  # noqa: PLC0415
    from kvlint.tokenize.tokenizer import load_tokenizer  # noqa: PLC0415

    load_tokenizer(model)
    start = time.perf_counter()
    requests = load(log, "openai")
    tokenized = tokenize_requests(model, requests)
    vllm_blocks.simulate(tokenized, 16)
    sglang_radix.simulate(tokenized)
    findings = run(requests, tokenized, 16)
    seconds = time.perf_counter() - start
    found: dict[str, list[str]] = {}
    for finding in findings:
        for request_id in finding.affected_request_ids:
            found.setdefault(request_id, []).append(finding.rule_id)
    return {
        "seconds": seconds,
        "prompt_tokens": sum(len(one.token_ids) for one in tokenized),
        "found": found,
    }


def prefixguard(log: Path, _model: str) -> dict[str, Any]:
    """Show every turn to one guard, the conversation as its session."""
    from prefixguard import PrefixGuard  # noqa: PLC0415 - of the peers' own environment

    guard = PrefixGuard()
    start = time.perf_counter()
    found: dict[str, list[str]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        report = guard.observe(
            messages=row["messages"], tools=row["tools"], session=row["conversation_id"]
        )
        if report.broken:
            found[row["request_id"]] = [finding.cause for finding in report.findings]
    return {"seconds": time.perf_counter() - start, "prompt_tokens": None, "found": found}


if __name__ == "__main__":
    tool, log_path, model_path = sys.argv[1:]
    result = {"kvlint": kvlint, "prefixguard": prefixguard}[tool](Path(log_path), model_path)
    print(json.dumps(result))
