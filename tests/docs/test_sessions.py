import os

import pytest

from tests.docs.sessions import Command, commands_of, first_line_not_printed, run_console


def run(body, folder):
    run_console(body, folder, dict(os.environ))


def test_a_block_is_split_into_commands_and_what_is_shown_for_each():
    assert commands_of("$ one \\\n>   --long\nout\n\n$ two\n") == [
        Command("one \\\n  --long", ("out", "")),
        Command("two", ()),
    ]


def test_a_block_that_does_not_start_with_a_command_is_refused():
    with pytest.raises(ValueError, match="starts with a command"):
        commands_of("out\n$ one\n")


def test_shown_lines_have_to_come_out_numbers_and_blanks_aside(tmp_path):
    run("$ echo 'turn 2   0.41 s'; echo done\nturn 10  0.2 s\ndone\n", tmp_path)


def test_a_line_that_does_not_come_out_fails(tmp_path):
    with pytest.raises(AssertionError, match="shown but not printed: 'turns # s'"):
        run("$ echo 'turn 2 s'\nturns 2 s\n", tmp_path)


def test_a_command_that_fails_fails(tmp_path):
    with pytest.raises(AssertionError, match="exit code 3"):
        run("$ echo fine\nfine\n$ (exit 3)\n", tmp_path)


def test_a_failure_inside_a_pipe_is_seen(tmp_path):
    with pytest.raises(AssertionError, match="exit code 1"):
        run("$ false | cat\n", tmp_path)


def test_commands_of_one_block_share_the_folder(tmp_path):
    run("$ echo kept > file\n$ cat file\nkept\n", tmp_path)


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        (("a", "b", "c"), None),
        (("b",), None),
        (("a", "c"), "c"),
        (("a", "...", "c"), None),
        (("c", "...", "a"), "a"),
        (("a", "...", "d"), "d"),
    ],
)
def test_dots_stand_for_any_lines_and_nothing_else_does(shown, missing):
    assert first_line_not_printed(shown, "a\nb\nc\n") == missing
