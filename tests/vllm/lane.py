"""`make test-vllm`: the tests against real vLLM servers, with an environment made for them.

Exit codes: 0 all passed, 3 the lane could NOT be run here, anything else is pytest's (1: a test
failed, 5: there were none). A lane that was not run never looks like one that passed: set
WARMTURN_WITHOUT_VLLM=1 on a machine of which that is known, and the line is all there is.
"""

import os
import subprocess
import sys
from pathlib import Path

from environment import LaneNotRun, ensure_environment

NOT_RUN = 3
NO_TESTS = 5
OPTIONS = ("--timeout", "900", "--durations", "8")
"""The first test of a suite waits for two servers, on a machine that may be busy."""
HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run the lane; return the exit code."""
    try:
        directory = ensure_environment()
    except LaneNotRun as reason:
        return report_not_run(str(reason))
    environment = os.environ | {"WARMTURN_VLLM": str(directory)}
    codes = []
    for files in suites():
        command = [sys.executable, "-m", "pytest", *files, *OPTIONS, *arguments]
        done = subprocess.run(command, env=environment, cwd=HERE.parents[1], check=False)
        codes.append(done.returncode)
    return overall(codes)


def suites() -> list[list[str]]:
    """Files by the servers they need: a machine holds two at a time, so these are not mixed."""
    files = sorted(map(str, HERE.glob("test_*.py")))
    tiers = [file for file in files if Path(file).name.startswith("test_tiers")]
    return [[file for file in files if file not in tiers], tiers]


def overall(codes: list[int]) -> int:
    """Return the worst; a suite that `-k` left empty (5) counts only if all were."""
    ran = [code for code in codes if code != NO_TESTS]
    return max(ran) if ran else NO_TESTS


def report_not_run(reason: str) -> int:
    """Say so where nobody overlooks it; return the exit code."""
    allowed = os.environ.get("WARMTURN_WITHOUT_VLLM") == "1"
    print(f"test-vllm: NOT RUN: {reason}", flush=True)
    if not allowed:
        print("  nothing was tested against vLLM; WARMTURN_WITHOUT_VLLM=1 accepts that", flush=True)
    return 0 if allowed else NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
