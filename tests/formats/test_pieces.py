"""Bytes to lines and to the objects of an array."""

import gzip
import io
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmturn.errors import MissingExtra
from warmturn.formats import pieces as pieces_module
from warmturn.formats.pieces import Piece, pieces
from warmturn.formats.record import BadLine


class Dribble(io.RawIOBase):
    """A stream that gives few bytes at a time."""

    def __init__(self, data, size):
        self._data, self._size = data, size

    def readable(self):
        return True

    def readinto(self, buffer):
        part, self._data = self._data[: self._size], self._data[self._size :]
        buffer[: len(part)] = part
        return len(part)


def cut(data):
    return list(pieces(io.BytesIO(data), source="log"))


def test_lines_keep_their_numbers_over_blank_ones():
    assert cut(b'{"a":1}\n\n  \r\nx') == [Piece(1, b'{"a":1}\n'), Piece(4, b"x")]


def test_a_byte_order_mark_is_no_content():
    assert cut(b"\xef\xbb\xbf{}") == [Piece(1, b"{}")]


def test_objects_of_an_array_are_numbered():
    data = b' [\n {"a": "]} \\" {["},{"b":\n[1,{}]}\n]\n'
    assert cut(data) == [Piece(1, b'{"a": "]} \\" {["}'), Piece(2, b'{"b":\n[1,{}]}')]


def test_an_object_over_several_lines_is_one_piece():
    assert cut(b'{\n "a": 1\n}\n{\n}') == [Piece(1, b'{\n "a": 1\n}'), Piece(2, b"{\n}")]


@pytest.mark.parametrize("data", [b"", b"\n", b"[]", b"[ \n ]", b"\xef\xbb\xbf"])
def test_nothing_has_no_pieces(data):
    assert cut(data) == []


def test_a_log_line_that_begins_with_a_bracket_is_no_array():
    assert cut(b"[pod/a] INFO x\n[pod/a] y\n") == [
        Piece(1, b"[pod/a] INFO x\n"),
        Piece(2, b"[pod/a] y\n"),
    ]


TEXT = st.text(st.sampled_from('a"\\{}[], \n'), max_size=6)  # all that has a meaning
NESTED = TEXT | st.lists(TEXT, max_size=3)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.dictionaries(TEXT, NESTED, max_size=3), max_size=4),
    st.integers(1, 9),
    st.sampled_from([None, 1]),
)
def test_an_array_is_cut_at_its_objects_wherever_chunks_end(values, size, indent):
    data = json.dumps(values, indent=indent, ensure_ascii=False).encode()
    cutter = pieces_module._Cutter("log")
    found = [p for at in range(0, len(data), size) for p in cutter.feed(data[at : at + size])]
    assert [json.loads(piece.data) for piece in found] == values
    assert list(cutter.finish()) == []


def test_what_is_left_of_an_array_that_breaks_off_is_a_piece():
    assert cut(b'[{"a":1}, {"b":') == [Piece(1, b'{"a":1}'), Piece(2, b'{"b":')]


@pytest.mark.parametrize("opening", [b"", b"["])
def test_a_piece_that_is_too_long_is_passed_over_by_number(monkeypatch, opening):
    monkeypatch.setattr(pieces_module, "MAX_PIECE_BYTES", 50)
    monkeypatch.setattr(pieces_module, "_CHUNK_BYTES", 7)
    separator = b"," if opening else b"\n"
    long = b'{"a":"' + b"x" * 80 + b'"}'
    found = cut(opening + separator.join([b'{"a":1}', long, b'{"b":2}']))
    assert [p.number if isinstance(p, Piece) else p.line for p in found] == [1, 2, 3]
    assert isinstance(found[1], BadLine)
    assert json.loads(found[2].data) == {"b": 2}


def test_gzip_is_known_by_its_bytes():
    assert cut(gzip.compress(b"a\nb")) == [Piece(1, b"a\n"), Piece(2, b"b")]


def test_a_gzip_file_that_breaks_off_gives_what_came_before_it():
    data = gzip.compress(b"".join(b"%d\n" % n for n in range(50_000)))
    *whole, last = cut(data[: len(data) // 2])
    assert len(whole) > 1000
    assert [int(piece.data) for piece in whole[:-1]] == list(range(len(whole) - 1))
    assert isinstance(last, BadLine)
    assert last.line == len(whole) + 1
    assert "reading stopped here" in last.reason


def test_gzip_with_damaged_bytes_stops_with_a_reason():
    data = bytearray(gzip.compress(b"".join(b"%d\n" % n for n in range(50_000))))
    data[len(data) // 2 : len(data) // 2 + 50] = b"\xff" * 50
    assert isinstance(cut(bytes(data))[-1], BadLine)


def test_a_stream_that_dribbles_is_read_whole():
    stream = Dribble(b"one\ntwo\n" * 10, 8)
    assert len(list(pieces(stream, source="log"))) == 20


def test_zstd_without_its_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtra, match=r"warmturn\[zst\]"):
        cut(b"\x28\xb5\x2f\xfd rest")


def test_zstd_is_read_and_damage_stops_with_a_reason():
    zstandard = pytest.importorskip("zstandard")
    data = zstandard.compress(b"a\n") + zstandard.compress(b"b\n")  # two frames
    assert cut(data) == [Piece(1, b"a\n"), Piece(2, b"b\n")]
    assert isinstance(cut(data[:6] + b"\xff\xff\xff" + data[9:])[-1], BadLine)
