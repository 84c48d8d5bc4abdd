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
HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run the lane; return the exit code."""
    try:
        directory = ensure_environment()
    except LaneNotRun as reason:
        return report_not_run(str(reason))
    environment = os.environ | {"WARMTURN_VLLM": str(directory)}
    command = [sys.executable, "-m", "pytest", str(HERE), "--durations", "8", *arguments]
    return subprocess.run(command, env=environment, cwd=HERE.parents[1], check=False).returncode


def report_not_run(reason: str) -> int:
    """Say so where nobody overlooks it; return the exit code."""
    allowed = os.environ.get("WARMTURN_WITHOUT_VLLM") == "1"
    print(f"test-vllm: NOT RUN: {reason}", flush=True)
    if not allowed:
        print("  nothing was tested against vLLM; WARMTURN_WITHOUT_VLLM=1 accepts that", flush=True)
    return 0 if allowed else NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
