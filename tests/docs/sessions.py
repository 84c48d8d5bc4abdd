"""Run what a page tells its reader to type, and compare what it shows with what comes out.

Console blocks: lines after `$ ` are commands, lines after `> ` continue one, the others
are what the page shows. Shown lines have to come out, in this order; a line `...` stands for
any lines between. Numbers are compared as "a number", runs of blanks as one, and empty
lines not at all.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_BLANKS = re.compile(r"[ \t]+")
TIMEOUT_S = 240


@dataclass(frozen=True, slots=True)
class Command:
    """One command and the lines the page shows for it; none where it shows nothing."""

    text: str
    shown: tuple[str, ...]


def commands_of(body: str) -> list[Command]:
    """Split a console block into its commands."""
    commands: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif not commands:
            raise ValueError(f"a console block starts with a command, not {line!r}")
        elif line.startswith("> ") and not commands[-1][1]:
            text, shown = commands[-1]
            commands[-1] = (f"{text}\n{line[2:]}", shown)
        else:
            commands[-1][1].append(line)
    return [Command(text, tuple(shown)) for text, shown in commands]


def run_console(body: str, folder: Path, environment: dict[str, str]) -> None:
    """Run the commands of a block one by one and assert what the page shows."""
    for command in commands_of(body):
        result = run_bash(command.text, folder, environment)
        output = result.stdout + result.stderr
        assert result.returncode == 0, f"$ {command.text}\nexit code {result.returncode}\n{output}"
        missing = first_line_not_printed(command.shown, output)
        assert missing is None, f"$ {command.text}\nshown but not printed: {missing!r}\n{output}"


def run_bash(
    script: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a script that stops at its first error."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def first_line_not_printed(shown: tuple[str, ...], output: str) -> str | None:
    """Return the first shown line that does not come out in its place; None when all do.

    Between two shown lines nothing else may come out, unless the page has `...` there.
    What comes before the first and after the last is free.
    """
    printed = [plain(line) for line in output.splitlines() if line.strip()]
    wanted = [plain(line) for line in shown if line.strip()]
    position, anywhere = 0, True
    for line in wanted:
        if line == "...":
            anywhere = True
            continue
        stop = len(printed) if anywhere else position + 1
        if line not in printed[position:stop]:
            return line
        position = printed.index(line, position, stop) + 1
        anywhere = False
    return None


def plain(line: str) -> str:
    """`ttft  0.13 s` becomes `ttft # s`."""
    return _BLANKS.sub(" ", _NUMBER.sub("#", line)).strip()
