from pathlib import Path

import pytest

from warmturn.cli.check_spool import Spool
from warmturn.errors import PeerError


def filled(*numbers):
    spool = Spool()
    for number in numbers:
        spool.add({"value": number, "half": "\ud800"}, number=number)
    return spool


def values(spool):
    return [value["value"] for value in spool]


def test_values_come_back_in_the_order_of_their_numbers():
    spool = filled(3, 1, 2)
    assert values(spool) == [1, 2, 3]
    assert next(iter(spool))["half"] == "\ud800"
    assert len(spool) == 3


def test_it_can_be_read_again_and_by_two_at_a_time_and_be_added_to():
    spool = filled(1, 2)
    assert [(a["value"], b["value"]) for a in spool for b in spool] == [
        (1, 1), (1, 2), (2, 1), (2, 2),
    ]  # fmt: skip
    spool.add({"value": 0}, number=0)
    assert values(spool) == [0, 1, 2]


def test_an_empty_one_yields_nothing():
    assert values(Spool()) == []


def test_what_one_writes_another_reads_from_the_same_file():
    """As with a process that inherited the file."""
    writer, reader = filled(2, 1), Spool()
    reader._file, index = writer._file, writer.handed_over()
    reader.take_over(index)
    assert values(reader) == [1, 2]


def test_the_file_is_closed_with_the_spool():
    spool = filled(1)
    file = spool._file
    del spool
    assert file.closed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_is_said():
    spool = Spool()
    spool._file.close()
    with Path("/dev/full").open("wb", buffering=0) as full:  # so that it fails at once
        spool._file = full
        with pytest.raises(PeerError, match="TMPDIR"):
            filled_into(spool)


def filled_into(spool):
    spool.add("x" * 100, number=1)
