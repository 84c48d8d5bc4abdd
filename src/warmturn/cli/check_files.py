"""Checks logs and writes the results where the user wants them."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from warmturn.check import Settings
from warmturn.check.engines import Engine
from warmturn.cli.check_inputs import LogSource, Rendering
from warmturn.cli.check_jobs import check_log
from warmturn.cli.output import write_text
from warmturn.errors import InvalidInput
from warmturn.report import (
    CheckedLog,
    FailureKey,
    check_json,
    check_page,
    check_suite,
    known_failures,
    print_check,
)

__all__ = ["Outputs", "check_files", "report_console"]


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


def check_files(
    source: LogSource,
    rendering: Rendering,
    settings: Settings,
    engine: Engine,
    baseline: Path | None,
    outputs: Outputs,
    *,
    jobs: int | None = 1,
) -> int:
    """Check the logs of `source` and report; return the exit code. Raises `InvalidInput`."""
    known = _known(baseline)
    report, bad = check_log(source, rendering, settings, jobs=jobs)
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
    return 1 if log.figures.num_new_failures else 0


def report_console(outputs: Outputs) -> Console:
    """Return where text for people goes: standard error if a result takes standard output."""
    stream = sys.stderr if outputs.takes_stdout else sys.stdout
    # Logs hold any character; a terminal that lacks one shows a question mark.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    return Console(file=stream, highlight=False)


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
    figures = log.figures
    if figures.num_not_rendered == num_requests:
        raise InvalidInput(
            f"none of the {num_requests} requests could be rendered; the first: {figures.refusal}"
        )
    if 1 < num_requests == figures.num_without_messages and figures.num_later_turns == 0:
        raise InvalidInput(
            f"none of the {num_requests} prompts continues another. They are logged as text or "
            "token ids only, where a conversation is known by how its prompts begin; log the "
            "request bodies too, or conversation ids"
        )


def _write(log: CheckedLog, outputs: Outputs) -> None:
    if outputs.json_file is not None:
        write_text(check_json(log), outputs.json_file, option="--json")
    if outputs.html is not None:
        write_text(check_page(log), outputs.html, option="--html")
    if outputs.junit is not None:
        write_text(check_suite(log), outputs.junit, option="--junit")
