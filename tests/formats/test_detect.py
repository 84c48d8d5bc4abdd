"""Which format a log is in."""

import pytest

from tests.support.logs import DATA
from warmturn.errors import InvalidInput
from warmturn.formats.detect import FORMATS, detect_format, format_named, parsed

FILES = {
    "openai_pairs.jsonl": "openai",
    "simple.jsonl": "openai",
    "batch.jsonl": "openai",
    "vllm.jsonl": "vllm",
    "vllm.log": "vllm-log",
    "vllm_old.log": "vllm-log",
    "sglang.jsonl": "sglang",
    "sglang_server.jsonl": "sglang",
    "llamacpp.jsonl": "llamacpp",
    "litellm.jsonl": "litellm",
    "anthropic.jsonl": "anthropic",
    "claude_code.jsonl": "claude-code",
    "codex.jsonl": "codex",
}


@pytest.mark.parametrize(("name", "expected"), FILES.items())
def test_each_format_is_told_by_its_first_lines(name, expected):
    assert detect_format((DATA / name).read_bytes().splitlines()) == expected


def test_every_format_has_a_file_here():
    assert {*FILES.values(), "sharegpt"} == set(FORMATS)


@pytest.mark.parametrize(("name", "expected"), FILES.items())
def test_no_other_format_before_it_claims_a_line_of_its_file(name, expected):
    """A file's later lines may be OpenAI's too, but never those of a narrower format."""
    tried = list(FORMATS)
    for line in (DATA / name).read_bytes().splitlines():
        try:
            found = detect_format([line])
        except InvalidInput:
            continue
        assert tried.index(found) >= tried.index(expected)


def test_lines_that_nobody_knows_are_passed_over():
    lines = [b"starting", b"{broken", b'{"type":"summary"}', b'{"messages":[]}']
    assert detect_format(lines) == "openai"


def test_an_unknown_log_is_refused_with_what_there_is_and_what_to_do():
    with pytest.raises(InvalidInput, match=r"first 2 lines .*claude-code, .*vllm-log.*--format"):
        detect_format([b"hello", b'{"x":1}'])


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(InvalidInput, match="no log format 'csv'; the formats are claude-code"):
        format_named("csv")


def test_only_session_files_are_limited_to_messages():
    limited = {name for name, known in FORMATS.items() if known.level == "messages"}
    assert limited == {"claude-code", "codex"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[1]", "not a JSON object"),
        (b'{"a":', "not valid JSON"),
        (b'{"a":NaN}', "not valid JSON"),
        (b'{"a":1e999}', "not valid JSON"),
        (b'{"a":"\\ud800"}', "not valid JSON"),
        (b'{"a":"\xff"}', "not valid JSON"),
        (b'{"a":' + b"[" * 32 + b"]" * 32 + b"}", "nested more than 32 deep"),
        (b'{"a":' + b"[" * 10**5, "nested too deeply"),
    ],
)
def test_what_is_no_object_says_what_it_is(data, reason):
    with pytest.raises(InvalidInput, match=reason):
        parsed(data)


def test_many_brackets_side_by_side_are_not_deep():
    data = b'{"a":' + b"[" * 31 + b"]" * 31 + b',"b":[' + b",".join([b"{}"] * 500) + b"]}"
    assert len(parsed(data)["b"]) == 500
