"""The checker beside kvlint and prefixguard, on one log whose causes are known.

    make bench-check [ARGS="--json FILE --rounds 3 --turns 6 --peers DIR"]

All read the same log (`benchmarks/planted_log.py`) with the same tokenizer (Qwen3) and chat
template, in turns, in one run; warmturn as its command does by default, on all cores, and with
one process. Seconds are without loading the tokenizer. The peers live in an
environment of their own, made in a temporary folder, or kept in `--peers DIR` for the next run.
Their own words count as naming a cause wherever they could be meant: see `MEANT`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import track
from rich.table import Table

import output
from planted_log import CAUSES, TEMPLATE, Log, as_response, planted_log
from warmturn.check import Settings
from warmturn.cli.check_inputs import LogSource, Rendering
from warmturn.cli.check_jobs import check_log
from warmturn.formats import LoggedRequest, read_log
from warmturn.render import Renderer

PEERS = ("kvlint==0.1.1", "prefixguard==0.2.1")
ONE_PROCESS = "warmturn, 1 process"
TOOLS = ("warmturn", ONE_PROCESS, "kvlint", "prefixguard")
TARGET_RATIO = 5.0
TARGET_SHARE = 0.95

HISTORY = {"HISTORY_REWRITE", "HISTORY_DROP", "COMPACTION"}
SYSTEM = {"SYSTEM_MUTATED", "VOLATILE_CONTENT", "HISTORY_REWRITE"}
MEANT = {
    "clock": {"dynamic_time"} | SYSTEM,
    "request_id": {"dynamic_id"} | SYSTEM,
    "user_data": {"user_in_system"} | SYSTEM,
    "tool_order": {"key_order", "TOOL_REORDER"},
    "tool_set": {"TOOL_SET_CHANGED", "TOOL_SCHEMA_DRIFT"},
    "schema_keys": {"key_order", "TOOL_SCHEMA_DRIFT", "NON_DETERMINISTIC_SERIALIZATION"},
    "argument_keys": {"key_order", "NON_DETERMINISTIC_SERIALIZATION"},
    "call_ids": {"dynamic_id", "HISTORY_REWRITE"},
    "block": {"HISTORY_REWRITE"},
    "window": HISTORY,
    "summary": {"COMPACTION", "HISTORY_DROP"},
    "trim": {"whitespace_drift", "HISTORY_REWRITE"},
    "reasoning": {"HISTORY_REWRITE"},
    "image": {"HISTORY_REWRITE"},
}
ALWAYS_ON = {"short_prefix", "block_straddle"}
"""kvlint's notes on lengths, on most requests of any log: not counted as false alarms."""


def main() -> int:
    """Measure, print, and return 0 when the targets are met."""
    parser = output.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--peers", type=Path, help="keep the peers' environment here")
    options = parser.parse_args()
    log = planted_log(
        seed=options.seed, num_conversations=options.conversations, num_turns=options.turns
    )
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        python = peers_python(options.peers or scratch / "peers")
        result = run(log, scratch, python, num_rounds=options.rounds)
    result |= {"seed": options.seed, "num_turns": options.turns}
    print_tables(result)
    output.write(result, options.json)
    return 0 if result["is_met"] else 1


def peers_python(directory: Path) -> Path:
    """Return the interpreter of an environment that has the peers; make it on first use."""
    python = directory / "bin" / "python"
    if not python.exists():
        output.console.print(f"installing {', '.join(PEERS)} into an environment of their own")
        venv.create(directory, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS]
        subprocess.run(list(map(str, pip)), check=True)
    return python


def run(log: Log, scratch: Path, python: Path, *, num_rounds: int) -> dict[str, Any]:
    """Run all tools in turns, and score what they found."""
    model = model_directory(scratch / "model")
    full, flat = scratch / "log.jsonl", scratch / "flat.jsonl"
    full.write_text("\n".join(json.dumps(as_response(row)) for row in log.rows))
    flat.write_text("\n".join(json.dumps(flattened(row)) for row in log.rows))
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in TOOLS}
    for _ in track(range(num_rounds), "rounds", console=output.console):
        samples["warmturn"].append(ours(full, model, jobs=None))
        samples[ONE_PROCESS].append(ours(full, model, jobs=1))
        for peer in ("kvlint", "prefixguard"):
            samples[peer].append(run_peer(python, peer, flat, model))
    tools = {name: figures(log, runs) for name, runs in samples.items()}
    ratio = tools["warmturn"]["tokens_per_s"]["median"] / tools["kvlint"]["tokens_per_s"]["median"]
    named = tools["warmturn"]["named_share"].values()
    is_met = ratio >= TARGET_RATIO and min(named) >= TARGET_SHARE
    return {
        "num_requests": len(log.rows),
        "num_conversations": len(log.truth),
        "num_rounds": num_rounds,
        "peers": list(PEERS),
        "tools": tools,
        "times_faster_than_kvlint": ratio,
        "is_met": is_met and tools["warmturn"]["false_alarms"] == 0,
    }


def ours(path: Path, model: Path, *, jobs: int | None) -> dict[str, Any]:
    """Check the log as the command does; a fresh tokenizer, so that nothing is known before."""
    renderer = Renderer.from_directory(model)
    source = LogSource(paths=(str(path),), format_name=None, is_strict=False)
    rendering = Rendering(renderer, renderer.tokenizer, "the planted log's own template")
    start = time.perf_counter()
    report, _bad = check_log(source, rendering, Settings(), jobs=jobs)
    seconds = time.perf_counter() - start
    requests = [item for item in read_log(path) if isinstance(item, LoggedRequest)]
    return {
        "seconds": seconds,
        "prompt_tokens": sum(num_tokens(request, renderer) for request in requests),
        "found": {t.request_id: list(t.causes) for t in report.turns() if t.verdict == "break"},
    }


def num_tokens(request: LoggedRequest, renderer: Renderer) -> int:
    """Count a prompt's tokens, outside the measured time."""
    from warmturn.check.prompt import PromptRenderer, prompt_of  # noqa: PLC0415

    return len(renderer.tokenizer.encode(PromptRenderer(renderer).text(prompt_of(request))))


def run_peer(python: Path, tool: str, log: Path, model: Path) -> dict[str, Any]:
    """Run one peer in its environment."""
    script = Path(__file__).with_name("check_peers.py")
    done = subprocess.run(
        [str(python), str(script), tool, str(log), str(model)],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def figures(log: Log, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return times, the share of broken turns whose cause is named, and false alarms."""
    found, tokens = runs[0]["found"], runs[0]["prompt_tokens"]
    wanted: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for truth in log.truth.values():
        planted = truth["planted"]
        meant = {CAUSES[planted]} | MEANT[planted] if planted in CAUSES else set()
        for request_id in truth["broken"]:
            wanted[planted] += 1
            named[planted] += bool(meant & set(found.get(request_id, ())))
    seconds = [run["seconds"] for run in runs]
    rates = None if tokens is None else output.summary([tokens / s for s in seconds])
    return {
        "seconds": output.summary(seconds),
        "prompt_tokens": tokens,
        "tokens_per_s": rates,
        "named_share": {planted: named[planted] / wanted[planted] for planted in sorted(wanted)},
        "false_alarms": false_alarms(log, found),
    }


def false_alarms(log: Log, found: dict[str, list[str]]) -> int:
    """Count clean conversations in which anything but lengths was found."""
    clean = {name for name, truth in log.truth.items() if truth["cause"] is None}
    flagged = {
        request_id.rsplit("-", 1)[0]
        for request_id, words in found.items()
        if set(words) - ALWAYS_ON
    }
    return len(clean & flagged)


def model_directory(path: Path) -> Path:
    """Make a model directory of the tests' Qwen3 tokenizer and the log's own template."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.support.corpora import tokenizer_directory  # noqa: PLC0415 - not a package of ours

    source = tokenizer_directory("qwen3")
    path.mkdir()
    (path / "tokenizer.json").symlink_to(source / "tokenizer.json")
    config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["chat_template"] = TEMPLATE
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def flattened(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as kvlint takes it: content is text."""
    messages = [{**m, "content": content_text(m.get("content"))} for m in row["messages"]]
    return {**{k: v for k, v in row.items() if k != "reply"}, "messages": messages}


def content_text(content: Any) -> str:
    """Join content parts as the log's template prints them."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(
        part["text"] if part["type"] == "text" else f"<|image|>{part['image_url']['url']}"
        for part in content
    )


def print_tables(result: dict[str, Any]) -> None:
    """Print speed, and the named share of each planted cause side by side."""
    tools = result["tools"]
    speed = Table("", "s", "tokens/s", "false alarms", box=None)
    shown = {name: found for name, found in tools.items() if name != ONE_PROCESS}
    named = Table("named in its turns", *shown, box=None)
    for name, found in tools.items():
        rates = found["tokens_per_s"]
        rate = "-" if rates is None else output.shown(rates, 0)
        speed.add_row(name, output.shown(found["seconds"], 2), rate, str(found["false_alarms"]))
    for planted in tools["warmturn"]["named_share"]:
        shares = (f"{found['named_share'][planted]:.0%}" for found in shown.values())
        named.add_row(planted, *shares)
    output.console.print(
        f"{result['num_requests']} requests, {result['num_conversations']} conversations, "
        f"{', '.join(result['peers'])}, {result['num_rounds']} rounds"
    )
    output.console.print(speed)
    output.console.print(named)
    ratio = result["times_faster_than_kvlint"]
    met = output.verdict(met=ratio >= TARGET_RATIO)
    output.console.print(f"{ratio:.1f} times kvlint's tokens per second: {TARGET_RATIO:.0f} {met}")


if __name__ == "__main__":
    sys.exit(main())
