"""What reuse does to the turn a user waits for: TTFT of the seed shape's last turn.

    make bench-reuse [ARGS="--json FILE --pairs 5 --dtype float32"]

Turn 10 of a conversation of 1,500 / 150 / 350 tokens has a prompt of 6,150 tokens, 6,000 of
them known from turn 9. Each pair prefills turn 9 and its reply under a new salt, then
sends turn 10 twice: under the same salt (warm) and under a fresh one (cold, the peer). The
order of the two alternates from pair to pair.
"""

import secrets
import statistics
import sys

import numpy as np
from rich.progress import track
from rich.table import Table

import output
from warmturn.probe.client import Client
from warmturn.probe.conversation import SEED_SHAPE
from warmturn.probe.local_engine import running_engine

TARGET_RATIO = 10.0
ONE_TOKEN = {"temperature": 0, "max_tokens": 1}


def measure_pair(client: Client, pair: int) -> tuple[float, float]:
    """Return (warm, cold) TTFT in seconds."""
    rng = np.random.default_rng(pair)
    known = SEED_SHAPE.prompt_tokens(SEED_SHAPE.turns - 1) + SEED_SHAPE.reply_tokens
    prompt = rng.integers(1000, 40_000, SEED_SHAPE.prompt_tokens(SEED_SHAPE.turns)).tolist()
    salt = secrets.token_hex(8)
    client.complete(prompt[:known], cache_salt=salt, **ONE_TOKEN)
    times = {}
    for kind in ("warm", "cold") if pair % 2 else ("cold", "warm"):
        used = salt if kind == "warm" else secrets.token_hex(8)
        answer = client.complete(prompt, cache_salt=used, **ONE_TOKEN)
        expected = known // 16 * 16 if kind == "warm" else 0
        if answer.cached_tokens != expected:
            raise SystemExit(f"{kind}: {answer.cached_tokens} tokens cached, not {expected}")
        times[kind] = answer.ttft_s
    return times["warm"], times["cold"]


def main() -> int:
    """Measure, print, and return 0 when the target is met."""
    parser = output.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    with (
        running_engine("--dtype", options.dtype, "--num-blocks", "1600") as facts,
        Client(facts["url"]) as client,
    ):
        numbers = track(range(options.pairs), "pairs", console=output.console)
        pairs = [measure_pair(client, n) for n in numbers]
    times = {"warm": [w * 1e3 for w, _ in pairs], "cold": [c * 1e3 for _, c in pairs]}
    ratios = [cold / warm for warm, cold in pairs]
    median = statistics.median(ratios)
    table = Table("turn 10", "TTFT ms, median (lowest - highest)")
    for name, values in times.items():
        spread = f"({min(values):,.0f} - {max(values):,.0f})"
        table.add_row(name, f"{statistics.median(values):,.0f} {spread}")
    output.console.print(table)
    output.console.print(
        f"cold : warm = {median:.1f} (lowest {min(ratios):.1f}, highest {max(ratios):.1f}, "
        f"{options.pairs} interleaved pairs, {facts['dtype']}); target {TARGET_RATIO:.0f}: "
        f"{output.verdict(met=median >= TARGET_RATIO)}"
    )
    result = {"dtype": facts["dtype"], "ttft_ms": times, "ratios": ratios, "median_ratio": median}
    output.write(result, options.json)
    return 0 if median >= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
