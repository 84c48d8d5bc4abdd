"""Whole logs: files, streams, broken ones, huge ones, and random bytes."""

import gzip
import io
import json
import random
import tracemalloc
from itertools import chain, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.logs import DATA, read_data, read_records, read_text
from warmturn.errors import InvalidInput, MissingExtra
from warmturn.formats.detect import FORMATS
from warmturn.formats.reading import read_log, read_stream
from warmturn.formats.record import BadLine, LoggedRequest

HI = {"messages": [{"role": "user", "content": "Hi"}]}
FILES = sorted(path.name for path in DATA.iterdir())


class Made(io.RawIOBase):
    """A stream whose bytes are made as they are read."""

    def __init__(self, parts):
        self._parts, self._rest = parts, b""

    def readable(self):
        return True

    def readinto(self, buffer):
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = part
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def test_a_broken_line_is_reported_by_number_and_the_rest_is_read():
    first, bad, last = read_records(HI, '{"messages": [', HI)
    assert (first.line, bad.line, last.line) == (1, 2, 3)
    assert bad.reason.startswith("not valid JSON")


def test_strict_stops_at_the_first_broken_line_with_its_number():
    with pytest.raises(InvalidInput, match="log: line 2: not valid JSON"):
        read_records(HI, "broken", HI, strict=True)


def test_files_are_read_in_order_each_in_its_own_format():
    paths = [DATA / "simple.jsonl", DATA / "codex.jsonl", DATA / "vllm.log"]
    levels = [request.level for request in read_log(paths)]
    assert levels == ["full"] * 2 + ["messages"] * 3 + ["full"] * 2


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith("log")])
def test_an_array_holds_what_lines_hold(name, tmp_path):
    data = (DATA / name).read_bytes()
    records = json.loads(data) if name.endswith(".json") else [*map(json.loads, data.splitlines())]
    lines, array = tmp_path / "lines", tmp_path / "array"
    lines.write_text("\n".join(map(json.dumps, records)))
    array.write_text(json.dumps(records, indent=1))
    found = [{**fields(item), "source": "", "request_id": ""} for item in read_log([array])]
    expected = [{**fields(item), "source": "", "request_id": ""} for item in read_log([lines])]
    for item in (*found, *expected):
        item["conversation_id"] = str(item.get("conversation_id")).replace("lines", "array")
    assert found == expected


def fields(item):
    return {name: getattr(item, name) for name in item.__slots__}


def test_a_compressed_file_holds_the_same(tmp_path):
    packed = tmp_path / "log.bin"
    packed.write_bytes(gzip.compress((DATA / "simple.jsonl").read_bytes()))
    found = list(read_log([packed]))
    assert [item.messages for item in found] == [i.messages for i in read_data("simple.jsonl")]


def test_a_truncated_gzip_file_gives_its_first_requests_and_says_where_it_ends(tmp_path):
    lines = [json.dumps({**HI, "request_id": f"{n:x}{n * 7919:x}"}) for n in range(5000)]
    packed = tmp_path / "log.gz"
    data = gzip.compress("\n".join(lines).encode())
    packed.write_bytes(data[: len(data) // 2])
    *requests, _, last = read_log([packed])
    assert all(isinstance(item, LoggedRequest) for item in requests)
    assert len(requests) > 1000
    assert "reading stopped here" in last.reason


def test_standard_input_is_a_dash(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(HI).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    (found,) = read_log(["-"])
    assert (found.source, found.line) == ("-", 1)


def test_one_path_may_stand_alone():
    path = DATA / "simple.jsonl"
    assert list(read_log(path)) == list(read_log(str(path))) == list(read_log([path]))


def test_an_empty_file_is_reported():
    assert read_text("\n") == [BadLine("log", 1, "the file is empty")]


@pytest.mark.parametrize("data", [b"\x00\x01\x7fELF" * 99, b"\xff\xfe" + "x".encode("utf-16")])
def test_a_binary_file_is_refused_with_its_name(data):
    with pytest.raises(InvalidInput, match="log: none of the first 1 lines is of a known format"):
        read_text(data)


def test_a_wrong_format_gives_a_reason_for_every_record():
    found = read_data("simple.jsonl", format="sharegpt")
    assert [item.reason for item in found] == ["this record has no list named conversations"] * 2


def test_an_unknown_format_is_refused_before_a_file_is_opened():
    with pytest.raises(InvalidInput, match="no log format 'csv'"):
        read_log(["/nowhere"], format="csv")


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot read the log .*gone: No such file"):
        list(read_log([tmp_path / "gone"]))
    with pytest.raises(InvalidInput, match=r"cannot read the log .*: Is a directory"):
        list(read_log([tmp_path]))


def test_a_servers_log_may_begin_with_much_else():
    start = "INFO 11-29 10:00:00 loading\n" * 500
    text = "DEBUG 11-29 10:00:00 Request a details: prompt: 'x', prompt_token_ids: [1]"
    assert read_text(start + text)[0].line == 501


def peak_bytes(first, line, num_lines):
    """Return how many requests a stream of equal lines gives, and the memory it takes."""
    stream = Made(chain([first], repeat(line, num_lines)))
    tracemalloc.start()
    try:
        num_requests = sum(
            isinstance(item, LoggedRequest) for item in read_stream(stream, source="log")
        )
        return num_requests, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("first", "separator"), [(b"", b"\n"), (b"[", b",\n")])
def test_two_hundred_megabytes_take_no_more_memory_than_two(first, separator):
    message = {"role": "user", "content": "word " * 13_000}
    line = json.dumps({"model": "m", "messages": [message] * 3}).encode() + separator
    num_small, small = peak_bytes(first, line, 10)
    num_large, large = peak_bytes(first, line, 1000)
    assert (num_small, num_large) == (10, 1000)
    assert large < small + 2**20
    assert large < 12 * len(line)


def test_a_vllm_log_without_replies_takes_bounded_memory(monkeypatch):
    monkeypatch.setattr("warmturn.formats.vllm_log.MAX_PENDING_CHARS", 2**20)
    prompt = "word " * 2000
    lines = (
        f"DEBUG 11-29 10:00:00 Request r{n} details: prompt: '{prompt}{n}<|end|>', "
        f"prompt_token_ids: [{n}]\n"
        for n in range(1000)
    )
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_stream(Made(map(str.encode, lines)), source="log")) == 1000
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


# ── Whatever is in a file, nothing but requests, bad lines and InvalidInput comes out ──

ODD = (
    None,
    True,
    0,
    -1,
    2**70,
    1e300,
    "",
    "x",
    "{",
    '{"a": 1}',
    [],
    [7],
    [None],
    [[]],
    {},
    {"": 0},
)


def spoil(value, dice, share):
    """Return `value` with a share of its parts replaced or gone."""
    if dice.random() < share:
        return dice.choice(ODD)
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if dice.random() > share}
        return {name: spoil(inner, dice, share) for name, inner in kept.items()}
    return [spoil(inner, dice, share) for inner in value] if isinstance(value, list) else value


def check_outcome(text, **options):
    try:
        items = read_text(text, **options)
    except (InvalidInput, MissingExtra):  # bytes may begin as zstd does
        return
    for item in items:
        assert isinstance(item, LoggedRequest | BadLine)
        if isinstance(item, LoggedRequest):
            prompts = (item.messages, item.prompt_text, item.prompt_token_ids)
            assert any(prompt is not None for prompt in prompts)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([name for name in FILES if name.endswith("jsonl")]),
    st.sampled_from([None, None, None, *FORMATS]),
    st.sampled_from([0.01, 0.03, 0.1]),
)
def test_spoiled_records_of_every_format_raise_nothing_else(seed, name, forced, share):
    dice = random.Random(seed)
    records = [json.loads(line) for line in (DATA / name).read_bytes().splitlines()]
    spoiled = "\n".join(json.dumps(spoil(record, dice, share)) for record in records)
    check_outcome(spoiled, format=forced)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(FILES))
def test_files_with_bytes_cut_out_raise_nothing_else(data, name):
    content = (DATA / name).read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 40)))
    check_outcome(content[:start] + data.draw(st.binary(max_size=8)) + content[end:])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([None, *FORMATS]))
def test_random_bytes_raise_nothing_else(content, name):
    check_outcome(content, format=name)
