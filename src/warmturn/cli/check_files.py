"""Checks logs and writes the results where the user wants them."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from warmturn.check import Checker, CheckReport, Settings
from warmturn.check.engines import Engine
from warmturn.cli.check_inputs import LogSource, Rendering
from warmturn.cli.output import write_json, write_text
from warmturn.errors import InvalidInput
from warmturn.formats import BadLine, LoggedRequest
from warmturn.report import (
    CheckedLog,
    FailureKey,
    check_data,
    check_page,
    check_suite,
    known_failures,
    print_check,
)

__all__ = ["Outputs", "check_files", "checked", "progress_console", "report_console"]

MOST_BAD_LINES = 5
"""Bad lines that are kept to be shown; the others are counted."""


_NO_MESSAGES = (
    "the prompt is logged as text or token ids only; without messages no turn can be found, so log "
    "the request bodies too"
)
"""Such requests all look like first turns: a log of them must not pass as clean."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go besides the terminal; None for nowhere, `-` for standard output."""

    json_file: str | None = None
    html: str | None = None
    junit: str | None = None

    @property
    def takes_stdout(self) -> bool:
        """Whether a file goes to standard output, so that the terminal's text must not."""
        return "-" in {self.json_file, self.html, self.junit}


@dataclass(slots=True)
class BadLines:
    """Counts the lines that could not be read, and keeps the first."""

    num_lines: int = 0
    kept: list[BadLine] = field(default_factory=list)

    def add(self, line: BadLine) -> None:
        """Count one more."""
        self.num_lines += 1
        if len(self.kept) < MOST_BAD_LINES:
            self.kept.append(line)


def check_files(
    source: LogSource,
    rendering: Rendering,
    settings: Settings,
    engine: Engine,
    baseline: Path | None,
    outputs: Outputs,
) -> int:
    """Check the logs of `source` and report; return the exit code. Raises `InvalidInput`."""
    known = _known(baseline)
    report, bad = checked(source.read(progress_console()), rendering, settings)
    log = CheckedLog(
        report=report,
        files=source.paths,
        rendered_with=rendering.about,
        fail_under=settings.fail_under,
        engine=engine,
        block_tokens=settings.block_size,
        prefill_tokens_per_s=settings.prefill_tokens_per_s,
        num_bad_lines=bad.num_lines,
        bad_lines=tuple(bad.kept),
        known=known,
    )
    _refuse_nothing_checked(log)
    print_check(log, report_console(outputs))
    _write(log, outputs)
    return 1 if log.failures else 0


def checked(
    items: Iterable[LoggedRequest | BadLine], rendering: Rendering, settings: Settings
) -> tuple[CheckReport, BadLines]:
    """Return the report on `items`, and the lines of which nothing can be said."""
    checker = Checker(template=rendering.template, tokenizer=rendering.tokenizer, settings=settings)
    bad = BadLines()
    for item in items:
        if isinstance(item, BadLine):
            bad.add(item)
        elif item.messages is None:
            bad.add(BadLine(item.source, item.line, _NO_MESSAGES))
        else:
            checker.add(item)
    return checker.report(), bad


def report_console(outputs: Outputs) -> Console:
    """Return where text for people goes: standard error if a result takes standard output."""
    stream = sys.stderr if outputs.takes_stdout else sys.stdout
    # Logs hold any character; a terminal that lacks one shows a question mark.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    return Console(file=stream, highlight=False)


def progress_console() -> Console:
    """Return where the progress bar goes, if it is a terminal."""
    return Console(stderr=True)


def _known(baseline: Path | None) -> frozenset[FailureKey]:
    if baseline is None:
        return frozenset()
    try:
        data = json.loads(baseline.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"cannot read the baseline {baseline}: {error}; write one with --json"
        ) from error
    return known_failures(data, name=str(baseline))


def _refuse_nothing_checked(log: CheckedLog) -> None:
    """A log of which nothing could be said must not look clean."""
    num_requests, first = log.report.num_requests, next(iter(log.bad_lines), None)
    if num_requests == 0:
        why = "" if first is None else f"; {first.source}:{first.line}: {first.reason}"
        raise InvalidInput(
            f"no request could be read from {', '.join(log.files)}{why}; check the file, or name "
            "its --format"
        )
    if log.num_not_rendered == num_requests:
        note = next(note for turn in log.report.turns() for note in turn.notes)
        raise InvalidInput(
            f"none of the {num_requests} requests could be rendered; the first: {note}"
        )


def _write(log: CheckedLog, outputs: Outputs) -> None:
    if outputs.json_file is not None:
        write_json(check_data(log), outputs.json_file)
    if outputs.html is not None:
        write_text(check_page(log), outputs.html, option="--html")
    if outputs.junit is not None:
        write_text(check_suite(log), outputs.junit, option="--junit")
