"""Results for people and for programs: terminal, JSON, one HTML page, JUnit.

In come frozen results of the deciding packages; out goes text. Nothing here decides, renders a
prompt or opens a file: `cli` writes what comes out where the user wants it.
"""

from warmturn.report.baseline import FailureKey, failure_key, known_failures
from warmturn.report.check_html import check_page
from warmturn.report.check_json import check_data, check_json
from warmturn.report.check_junit import check_suite
from warmturn.report.check_terminal import print_check
from warmturn.report.checked_log import CheckedLog
from warmturn.report.sweep_terminal import print_sweep, sweep_data

__all__ = [
    "CheckedLog",
    "FailureKey",
    "check_data",
    "check_json",
    "check_page",
    "check_suite",
    "failure_key",
    "known_failures",
    "print_check",
    "print_sweep",
    "sweep_data",
]
