"""Which vLLM a command starts, told without importing it: that takes ten seconds."""

import shutil
import subprocess
from pathlib import Path

from warmturn.errors import InvalidInput, PeerError

__all__ = ["find_vllm", "installed_version"]

_ASK = "import importlib.metadata as m; print(m.version('vllm'))"


def find_vllm(program: str = "vllm") -> Path:
    """Return the path of the `vllm` program. Raises `InvalidInput` where there is none."""
    found = shutil.which(program)
    if found is None:
        raise InvalidInput(
            f"there is no program {program!r}; install vLLM in an environment of its own and name "
            "its program: --vllm /path/to/bin/vllm"
        )
    return Path(found)


def installed_version(program: Path) -> str:
    """Ask the Python beside `program`, `0.32.0` for example; a build's suffix is left out.

    Raises `PeerError` where no Python lies beside it, or it knows no distribution `vllm`.
    """
    python = program.resolve().parent / "python"
    try:
        result = subprocess.run(  # noqa: S603 - the user's own environment
            [str(python), "-c", _ASK], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerError(f"the version of {program} cannot be told: {error}") from error
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise PeerError(f"the version of {program} cannot be told: {last}")
    return result.stdout.strip().partition("+")[0]
