"""The fixture for applications, used by a test suite of its own in a process of its own."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.support.logged import assistant, system, user
from warmturn.errors import InvalidInput
from warmturn.testing import failure_message, report_on_turns

CLOCK = [
    {"messages": [system("It is 10:03."), user("Hi")]},
    {"messages": [system("It is 10:04."), user("Hi"), assistant("Hello"), user("More")]},
]
CLEAN = [
    {"messages": [system("Be brief."), user("Hi")]},
    {"messages": [system("Be brief."), user("Hi"), assistant("Hello"), user("More")]},
]


def test_turns_that_only_append_are_clean():
    assert report_on_turns(CLEAN).is_clean


def test_a_failure_names_cause_place_both_sides_and_what_helps():
    message = failure_message(report_on_turns(CLOCK))
    assert message.startswith(
        "1 of 2 turns are not append-only\nturn 2: client.timestamp_in_system"
    )
    assert "messages[0]: " in message
    assert "10:03" in message
    assert "10:04" in message
    assert "helps: " in message


def test_replies_that_are_not_sent_back_as_generated_are_found():
    answer = {"choices": [{"index": 0, "message": assistant("Hello, how are you today?\n\n")}]}
    first = {"request": CLEAN[0], "response": answer}
    second = {
        "messages": [*CLEAN[0]["messages"], assistant("Hello, how are you today?"), user("x")]
    }
    assert report_on_turns([first, second], fail_under=1.0).cause == "client.content_trimmed"


def test_a_template_can_be_given_as_its_source():
    source = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    assert report_on_turns(CLOCK, template=source).is_clean


@pytest.mark.parametrize("turns", [[], [{"nothing": 1}], [{"messages": "x"}]])
def test_what_is_no_turn_is_refused(turns):
    with pytest.raises(InvalidInput):
        report_on_turns(turns)


SUITE = """
def test_clean(append_only):
    report = append_only({clean!r})
    assert report.num_requests == 2

def test_clock(append_only):
    append_only({clock!r})
"""


def test_the_fixture_fails_the_test_of_an_application_with_the_cause(tmp_path):
    suite = tmp_path / "test_app.py"
    suite.write_text(SUITE.format(clean=CLEAN, clock=CLOCK))
    # Where warmturn is installed pytest finds the fixture by its entry point; here it is named.
    plugin = ["-p", "no:randomly", "-p", "no:cacheprovider"]
    if not entry_points(group="pytest11", name="warmturn"):  # run from a source tree
        plugin += ["-p", "warmturn.testing"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, str(suite), "--rootdir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "1 failed, 1 passed" in result.stdout
    assert "turn 2: client.timestamp_in_system (blame: client)" in result.stdout
    assert "testing.py" not in result.stdout


def test_the_plugin_loads_nothing_heavy_into_other_test_runs():
    code = (
        "import warmturn.testing, sys; print({'numpy', 'jinja2', 'tokenizers'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "set()"
